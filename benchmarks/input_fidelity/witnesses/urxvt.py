"""Show urxvt and write down what its programs received: `urxvt.py LOG`."""

from terminal import main

if __name__ == "__main__":
    main()
