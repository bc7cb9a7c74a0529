"""Show xfce4-terminal and write down what its programs received: `xfce4-terminal.py LOG`."""

from terminal import main

if __name__ == "__main__":
    main()
