import java.awt.GridLayout;
import java.io.FileWriter;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import javax.swing.JButton;
import javax.swing.JFrame;
import javax.swing.SwingUtilities;

/** A window of Swing with forty buttons; what timers.py is for other toolkits. */
public class Timer {
    private static long last = System.nanoTime();
    private static long line = last;
    private static long busy = 0;
    private static long largest = 0;
    private static long busiest = 0;

    private static void tick(PrintWriter out) {
        long now = System.nanoTime();
        long used = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        largest = Math.max(largest, now - last);
        busiest = Math.max(busiest, busy == 0 ? 0 : used - busy);
        last = now;
        busy = used;
        if (now - line >= 50_000_000L) {
            out.printf(Locale.ROOT, "%.3f %.3f%n", largest / 1e6, busiest / 1e6);
            out.flush();
            largest = 0;
            busiest = 0;
            line = now;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintWriter out = new PrintWriter(new FileWriter(arguments[0], true));
        SwingUtilities.invokeLater(() -> {
            JFrame frame = new JFrame("Timer");
            frame.setDefaultCloseOperation(JFrame.EXIT_ON_CLOSE);
            frame.setLayout(new GridLayout(0, 5));
            for (int number = 0; number < 40; number++) {
                frame.add(new JButton("Button " + number));
            }
            frame.pack();
            frame.setVisible(true);
            new javax.swing.Timer(5, event -> tick(out)).start();
        });
    }
}
