"""Show xterm and write down what its programs received: `xterm.py LOG`."""

from terminal import main

if __name__ == "__main__":
    main()
