"""Runs a program in a terminal that pyte emulates.

The arguments are the program's command line. Reads commands from standard input, one JSON object per line, and answers each
with the state of the screen: {"keys": "q"} types, {"size": [columns, lines]} resizes, {"signal": 15} sends a signal, and
{} only reads the screen.
"""

import copy
import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios

import pyte

ALTERNATE_SCREEN = 1049 << 5
CURSOR = 25 << 5


class Screen(pyte.Screen):
    """Restores the main screen on leaving the alternate screen, which pyte does not do."""

    main_screen = None

    def set_mode(self, *modes, **options):
        super().set_mode(*modes, **options)
        if self.main_screen is None and ALTERNATE_SCREEN in self.mode:
            self.main_screen = copy.deepcopy(self.buffer), copy.copy(self.cursor)
            self.erase_in_display(2)

    def reset_mode(self, *modes, **options):
        super().reset_mode(*modes, **options)
        if self.main_screen is not None and ALTERNATE_SCREEN not in self.mode:
            buffer, cursor = self.main_screen
            self.main_screen = None
            self.buffer.clear()
            self.buffer.update(buffer)
            self.cursor.x, self.cursor.y = cursor.x, cursor.y
            self.dirty.update(range(self.lines))


def set_size(terminal, columns, lines):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def take_terminal(child_end):
    """Makes a terminal the controlling terminal and the standard streams of this process."""
    os.setsid()
    fcntl.ioctl(child_end, termios.TIOCSCTTY, 0)
    for descriptor in (0, 1, 2):
        os.dup2(child_end, descriptor)


def main():
    screen = Screen(80, 24)
    stream = pyte.ByteStream(screen)
    terminal, child_end = pty.openpty()
    set_size(terminal, 80, 24)
    before = termios.tcgetattr(child_end)
    child = os.fork()
    if child == 0:
        os.close(terminal)
        take_terminal(child_end)
        os.execvp(sys.argv[1], sys.argv[1:])
    status, state = None, "runs"
    while True:
        # Output that follows within 50 ms belongs to the same update.
        while select.select([terminal], [], [], 0.05)[0]:
            try:
                some = os.read(terminal, 65536)
            except OSError:
                break
            if not some:
                break
            stream.feed(some)
        if status is None:
            pid, ended = os.waitpid(child, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid and os.WIFSTOPPED(ended):
                state = "stopped"
            elif pid and os.WIFCONTINUED(ended):
                state = "runs"
            elif pid:
                status, state = os.waitstatus_to_exitcode(ended), "ended"
        if not select.select([sys.stdin], [], [], 0)[0]:
            continue
        line = sys.stdin.readline()
        if not line:
            if status is None:
                os.kill(child, 9)
                os.waitpid(child, 0)
            return
        command = json.loads(line)
        if "keys" in command:
            os.write(terminal, command["keys"].encode())
        if "size" in command:
            columns, lines = command["size"]
            screen.resize(lines, columns)
            set_size(terminal, columns, lines)
        if "signal" in command and status is None:
            os.kill(child, command["signal"])
        answer = {
            "lines": [line.rstrip() for line in screen.display],
            "alternate": ALTERNATE_SCREEN in screen.mode,
            "cursor": CURSOR in screen.mode,
            "restored": termios.tcgetattr(child_end) == before,
            "state": state,
            "status": status,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
