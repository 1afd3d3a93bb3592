"""A terminal that a program runs in: pyte draws what the program writes, and a test looks at it.

Takes the program's command as arguments, and a JSON object a line on standard input; answers each with what is on the
screen by then, as one line of JSON. {"keys": "q"} types, {"size": [columns, lines]} resizes, {"signal": 15} sends the
program a signal, {} just looks.
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
    """One that brings back what was there before the alternate screen, which pyte does not."""

    hidden = None

    def set_mode(self, *modes, **options):
        super().set_mode(*modes, **options)
        if self.hidden is None and ALTERNATE_SCREEN in self.mode:
            self.hidden = copy.deepcopy(self.buffer), copy.copy(self.cursor)
            self.erase_in_display(2)

    def reset_mode(self, *modes, **options):
        super().reset_mode(*modes, **options)
        if self.hidden is not None and ALTERNATE_SCREEN not in self.mode:
            buffer, cursor = self.hidden
            self.hidden = None
            self.buffer.clear()
            self.buffer.update(buffer)
            self.cursor.x, self.cursor.y = cursor.x, cursor.y
            self.dirty.update(range(self.lines))


def set_size(terminal, columns, lines):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def log_in(theirs):
    """Makes a terminal ours."""
    os.setsid()
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    for descriptor in (0, 1, 2):
        os.dup2(theirs, descriptor)


def main():
    screen = Screen(80, 24)
    stream = pyte.ByteStream(screen)
    terminal, theirs = pty.openpty()
    set_size(terminal, 80, 24)
    before = termios.tcgetattr(theirs)
    child = os.fork()
    if child == 0:
        os.close(terminal)
        log_in(theirs)
        os.execvp(sys.argv[1], sys.argv[1:])
    status, state = None, "runs"
    while True:
        # Whatever comes within 50 ms of the last of it belongs together.
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
        order = json.loads(line)
        if "keys" in order:
            os.write(terminal, order["keys"].encode())
        if "size" in order:
            columns, lines = order["size"]
            screen.resize(lines, columns)
            set_size(terminal, columns, lines)
        if "signal" in order and status is None:
            os.kill(child, order["signal"])
        answer = {
            "lines": [line.rstrip() for line in screen.display],
            "alternate": ALTERNATE_SCREEN in screen.mode,
            "cursor": CURSOR in screen.mode,
            "restored": termios.tcgetattr(theirs) == before,
            "state": state,
            "status": status,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
