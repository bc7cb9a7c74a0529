"""Show a window of Qt 6 and write down what it received: `qt6.py LOG`."""

from qt5 import main

if __name__ == "__main__":
    main()
