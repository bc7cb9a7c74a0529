import java.awt.Component;
import java.awt.ContainerOrderFocusTraversalPolicy;
import java.awt.Dimension;
import java.awt.Font;
import java.awt.Point;
import java.awt.datatransfer.DataFlavor;
import java.awt.datatransfer.StringSelection;
import java.awt.datatransfer.Transferable;
import java.awt.event.ActionEvent;
import java.awt.event.InputEvent;
import java.awt.event.KeyAdapter;
import java.awt.event.KeyEvent;
import java.awt.event.KeyListener;
import java.awt.event.MouseAdapter;
import java.awt.event.MouseEvent;
import java.awt.event.WindowAdapter;
import java.awt.event.WindowEvent;
import java.io.File;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.text.ParseException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import javax.swing.AbstractAction;
import javax.swing.BorderFactory;
import javax.swing.JButton;
import javax.swing.JComponent;
import javax.swing.JFileChooser;
import javax.swing.JFormattedTextField;
import javax.swing.JFrame;
import javax.swing.JLabel;
import javax.swing.JList;
import javax.swing.JPanel;
import javax.swing.JPasswordField;
import javax.swing.JScrollPane;
import javax.swing.JSpinner;
import javax.swing.JTextArea;
import javax.swing.JTextField;
import javax.swing.KeyStroke;
import javax.swing.SwingUtilities;
import javax.swing.Timer;
import javax.swing.TransferHandler;
import javax.swing.event.DocumentEvent;
import javax.swing.event.DocumentListener;
import javax.swing.text.JTextComponent;
import javax.swing.text.MaskFormatter;

/**
 * Shows a window of Swing and writes down what it received: {@code java Witness.java LOG}.
 *
 * <p>Places, rows and names of keys are those of recorder.py.
 */
public class Witness extends JFrame {
    private static final String PAYLOAD = "payload-swing";
    private static final int OPENS_AFTER_MS = 300;
    private static final String[] ROWS = {
        "apple", "banana", "cherimoya", "cherry", "date", "elderberry", "fig", "grape"};

    private final PrintWriter log;
    private final Map<String, JComponent> targets = new LinkedHashMap<>();
    private final JPanel pane = new JPanel(null);
    private boolean told;

    Witness(String path) throws IOException, ParseException {
        super("witness-swing");
        log = new PrintWriter(Files.newBufferedWriter(Paths.get(path), StandardCharsets.UTF_8,
                StandardOpenOption.CREATE, StandardOpenOption.APPEND), true);
        pane.setPreferredSize(new Dimension(900, 700));
        setContentPane(pane);
        // by default Tab goes along the rows of the window: from "entry" to "multiline"
        setFocusTraversalPolicy(new ContainerOrderFocusTraversalPolicy());
        placeTexts();
        placeSearch();
        place("keys", keys(), 10, 396, 280, 60);
        place("area", area(), 10, 516, 880, 170);
        place("source", source(), 310, 396, 130, 60);
        place("drop", drop(), 460, 396, 130, 60);
        place("scroll", scroll(), 310, 220, 280, 160);
        place("save", button("save", this::save), 10, 466, 130, 40);
        place("open", button("open", this::openSoon), 150, 466, 130, 40);
        pane.getInputMap(JComponent.WHEN_ANCESTOR_OF_FOCUSED_COMPONENT).put(
                KeyStroke.getKeyStroke("ctrl shift S"), "save");
        pane.getActionMap().put("save", new AbstractAction() {
            @Override public void actionPerformed(ActionEvent event) {
                if (!targets.get("keys").isFocusOwner()) {
                    save();
                }
            }
        });
        addWindowListener(new WindowAdapter() {
            @Override public void windowClosing(WindowEvent event) {
                write("exit");
                System.exit(0);
            }

            @Override public void windowActivated(WindowEvent event) {
                targets.get("entry").requestFocusInWindow();
                SwingUtilities.invokeLater(Witness.this::tell);
            }
        });
        setResizable(false);
        pack();
        setLocation(40, 40);
    }

    // the log

    /** Appends an event; fields are names and values in turn, and a value is a text unless it is a number. */
    private void write(String event, Object... fields) {
        StringJoiner line = new StringJoiner(",", "{", "}");
        line.add("\"event\":" + quoted(event));
        for (int at = 0; at < fields.length; at += 2) {
            Object value = fields[at + 1];
            boolean text = value instanceof String;
            line.add(quoted((String) fields[at]) + ":" + (text ? quoted((String) value) : value.toString()));
        }
        log.println(line);
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\' || one < 0x20) {
                quoted.append(String.format("\\u%04x", (int) one));
            } else {
                quoted.append(one);
            }
        }
        return quoted.append('"').toString();
    }

    private void tell() {
        if (told || !isShowing()) {
            return;
        }
        told = true;
        StringJoiner boxes = new StringJoiner(",", "{", "}");
        targets.forEach((name, part) -> {
            Point corner = part.getLocationOnScreen();
            boxes.add(quoted(name) + ":" + List.of(corner.x, corner.y, part.getWidth(), part.getHeight()));
        });
        write("ready", "targets", boxes);
    }

    // the targets

    private <T extends JComponent> T place(String name, T part, int x, int y, int width, int height) {
        part.setBounds(x, y, width, height);
        pane.add(part);
        targets.put(name, part);
        return part;
    }

    private void placeTexts() throws ParseException {
        watch("entry", place("entry", new JTextField(), 10, 10, 280, 34));
        watch("password", place("password", new JPasswordField(), 10, 54, 280, 34));
        JSpinner spin = place("spin", new JSpinner(), 10, 98, 280, 34);
        watch("spin", ((JSpinner.DefaultEditor) spin.getEditor()).getTextField());
        MaskFormatter digits = new MaskFormatter("##-##-####");
        digits.setPlaceholderCharacter('_');
        watch("mask", place("mask", new JFormattedTextField(digits), 10, 142, 280, 34));
        JTextArea lines = new JTextArea();
        watch("multiline", lines);
        place("multiline", new JScrollPane(lines), 310, 10, 280, 200);
    }

    private void watch(String name, JTextComponent part) {
        // a formatted field removes its text before it sets it: what is there after both is told once
        Runnable changed = () -> SwingUtilities.invokeLater(() -> write("text", "target", name, "value",
                part instanceof JPasswordField ? new String(((JPasswordField) part).getPassword())
                        : part.getText()));
        part.getDocument().addDocumentListener(new DocumentListener() {
            @Override public void insertUpdate(DocumentEvent event) {
                changed.run();
            }

            @Override public void removeUpdate(DocumentEvent event) {
                changed.run();
            }

            @Override public void changedUpdate(DocumentEvent event) {
                changed.run();
            }
        });
        if (part instanceof JTextField) {
            ((JTextField) part).addActionListener(event -> write("activate", "target", name));
        }
    }

    private void placeSearch() {
        JList<String> list = new JList<>(ROWS);
        list.addListSelectionListener(event -> {
            if (list.getSelectedValue() != null) {
                write("select", "target", "search", "value", list.getSelectedValue());
            }
        });
        list.addKeyListener(new KeyAdapter() {
            @Override public void keyPressed(KeyEvent event) {
                if (event.getKeyCode() == KeyEvent.VK_ENTER) {
                    write("activate", "target", "search");
                }
            }
        });
        place("search", new JScrollPane(list), 10, 186, 280, 200);
    }

    private static JLabel label(String name) {
        JLabel label = new JLabel(name);
        label.setBorder(BorderFactory.createLineBorder(java.awt.Color.BLACK));
        return label;
    }

    private JLabel keys() {
        JLabel keys = label("keys");
        keys.setFocusable(true);
        keys.setFocusTraversalKeysEnabled(false);
        keys.addMouseListener(new MouseAdapter() {
            @Override public void mousePressed(MouseEvent event) {
                keys.requestFocusInWindow();
            }
        });
        keys.addKeyListener(new KeyListener() {
            @Override public void keyPressed(KeyEvent event) {
                write("key", "name", name(event), "down", true);
            }

            @Override public void keyReleased(KeyEvent event) {
                write("key", "name", name(event), "down", false);
            }

            @Override public void keyTyped(KeyEvent event) {
                // a press tells as much, and of the keys that type nothing too
            }
        });
        return keys;
    }

    private static String name(KeyEvent event) {
        String named = switch (event.getKeyCode()) {
            case KeyEvent.VK_ENTER -> "Return";
            case KeyEvent.VK_BACK_SPACE -> "BackSpace";
            case KeyEvent.VK_TAB -> "Tab";
            case KeyEvent.VK_ESCAPE -> "Escape";
            case KeyEvent.VK_DELETE -> "Delete";
            case KeyEvent.VK_INSERT -> "Insert";
            case KeyEvent.VK_SPACE -> "space";
            case KeyEvent.VK_HOME -> "Home";
            case KeyEvent.VK_END -> "End";
            case KeyEvent.VK_PAGE_UP -> "Prior";
            case KeyEvent.VK_PAGE_DOWN -> "Next";
            case KeyEvent.VK_LEFT -> "Left";
            case KeyEvent.VK_RIGHT -> "Right";
            case KeyEvent.VK_UP -> "Up";
            case KeyEvent.VK_DOWN -> "Down";
            case KeyEvent.VK_CAPS_LOCK -> "Caps_Lock";
            case KeyEvent.VK_SHIFT -> side(event, "Shift");
            case KeyEvent.VK_CONTROL -> side(event, "Control");
            case KeyEvent.VK_ALT -> side(event, "Alt");
            case KeyEvent.VK_WINDOWS, KeyEvent.VK_META -> side(event, "Super");
            default -> "";
        };
        if (named.endsWith("_L") || named.endsWith("_R")) {
            return named;
        }
        boolean chord = event.isControlDown() || event.isAltDown() || event.isMetaDown();
        if (named.isEmpty()) {
            char typed = event.getKeyChar();
            named = chord || typed == KeyEvent.CHAR_UNDEFINED
                    ? KeyEvent.getKeyText(event.getKeyCode()).toLowerCase() : String.valueOf(typed);
        }
        String shift = event.isShiftDown() && (chord || named.length() > 1) ? "shift+" : "";
        return (event.isControlDown() ? "ctrl+" : "") + (event.isAltDown() ? "alt+" : "") + shift
                + (event.isMetaDown() ? "super+" : "") + named;
    }

    private static String side(KeyEvent event, String key) {
        return key + (event.getKeyLocation() == KeyEvent.KEY_LOCATION_RIGHT ? "_R" : "_L");
    }

    private JLabel area() {
        JLabel area = label("area");
        MouseAdapter mouse = new MouseAdapter() {
            private final List<List<Integer>> path = new ArrayList<>();

            @Override public void mousePressed(MouseEvent event) {
                path.clear();
                path.add(List.of(event.getXOnScreen(), event.getYOnScreen()));
                write("click", "target", "area", "button", event.getButton(), "count",
                        event.getClickCount(), "x", event.getXOnScreen(), "y", event.getYOnScreen());
            }

            @Override public void mouseDragged(MouseEvent event) {
                path.add(List.of(event.getXOnScreen(), event.getYOnScreen()));
            }

            @Override public void mouseReleased(MouseEvent event) {
                List<Integer> from = path.get(0);
                List<Integer> to = List.of(event.getXOnScreen(), event.getYOnScreen());
                if (!from.equals(to)) {
                    write("drag", "points", path.size() - 1, "path", path, "from", from, "to", to);
                }
            }
        };
        area.addMouseListener(mouse);
        area.addMouseMotionListener(mouse);
        return area;
    }

    private JLabel source() {
        JLabel source = label("source");
        source.setTransferHandler(new TransferHandler() {
            @Override public int getSourceActions(JComponent part) {
                return COPY;
            }

            @Override protected Transferable createTransferable(JComponent part) {
                return new StringSelection(PAYLOAD);
            }
        });
        MouseAdapter mouse = new MouseAdapter() {
            private Point pressed = new Point();

            @Override public void mousePressed(MouseEvent event) {
                pressed = event.getPoint();
            }

            @Override public void mouseDragged(MouseEvent event) {
                if (event.getPoint().distance(pressed) > java.awt.dnd.DragSource.getDragThreshold()) {
                    source.getTransferHandler().exportAsDrag(source, event, TransferHandler.COPY);
                }
            }
        };
        source.addMouseListener(mouse);
        source.addMouseMotionListener(mouse);
        return source;
    }

    private JLabel drop() {
        JLabel drop = label("drop");
        drop.setTransferHandler(new TransferHandler() {
            @Override public boolean canImport(TransferSupport support) {
                support.setDropAction(COPY);
                return support.isDataFlavorSupported(DataFlavor.stringFlavor)
                        || support.isDataFlavorSupported(DataFlavor.javaFileListFlavor);
            }

            @Override public boolean importData(TransferSupport support) {
                try {
                    Transferable data = support.getTransferable();
                    if (support.isDataFlavorSupported(DataFlavor.javaFileListFlavor)) {
                        StringJoiner files = new StringJoiner("\n");
                        for (Object file : (List<?>) data.getTransferData(DataFlavor.javaFileListFlavor)) {
                            files.add("file://" + ((File) file).getPath());
                        }
                        write("drop", "target", "drop", "data", files.toString());
                    } else {
                        write("drop", "target", "drop", "data",
                                (String) data.getTransferData(DataFlavor.stringFlavor));
                    }
                    return true;
                } catch (java.awt.datatransfer.UnsupportedFlavorException | IOException error) {
                    write("error", "message", error.toString());
                    return false;
                }
            }
        });
        return drop;
    }

    private JLabel scroll() {
        JLabel scroll = label("scroll");
        scroll.addMouseWheelListener(event -> {
            // Swing says of a wheel that turns to a side that it turns while Shift is held
            boolean aside = (event.getModifiersEx() & InputEvent.SHIFT_DOWN_MASK) != 0;
            double clicks = event.getPreciseWheelRotation();
            write("scroll", "dx", aside ? clicks : 0.0, "dy", aside ? 0.0 : clicks);
        });
        return scroll;
    }

    private static JButton button(String name, Runnable pressed) {
        JButton button = new JButton(name);
        button.setFont(button.getFont().deriveFont(Font.PLAIN));
        button.addActionListener(event -> pressed.run());
        return button;
    }

    private void save() {
        JFileChooser chooser = new JFileChooser(System.getProperty("user.home"));
        Component parent = this;
        boolean chosen = chooser.showSaveDialog(parent) == JFileChooser.APPROVE_OPTION;
        write("dialog", "name", "save", "path", chosen ? chooser.getSelectedFile().getPath() : "");
    }

    private void openSoon() {
        Timer timer = new Timer(OPENS_AFTER_MS, event -> {
            JFrame late = new JFrame("late");
            JTextField entry = new JTextField(30);
            watch("late", entry);
            late.add(entry);
            late.pack();
            late.setLocation(300, 300);
            late.setVisible(true);
        });
        timer.setRepeats(false);
        timer.start();
    }

    /** Shows the window until its window manager closes it. */
    public static void main(String[] arguments) {
        SwingUtilities.invokeLater(() -> {
            try {
                new Witness(arguments[0]).setVisible(true);
            } catch (IOException | ParseException error) {
                throw new IllegalStateException(error);
            }
        });
    }
}
