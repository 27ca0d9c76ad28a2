"""The limit: a small Python process that only starts processes, SLOTS at a time, and waits for them.

python -I -S spawn_loop.py TASKS SLOTS [silent]     # once for each line on stdin, seconds on stdout
"""

import os
import sys
import time

SILENT = ["/bin/true"]
LINE = ["/bin/echo", "a line of stdout"]


def silent(tasks, slots):
    begun = running = 0
    while begun < tasks or running:
        while begun < tasks and running < slots:
            os.posix_spawn(SILENT[0], SILENT, os.environ)
            begun += 1
            running += 1
        if os.wait()[1]:
            raise SystemExit("a task failed")
        running -= 1


def kept(tasks, slots):
    """Run tasks whose output goes into a file in memory, one for each slot, which is read at their end."""
    files = [os.memfd_create("stdout") for _ in range(slots)]
    place_of, kept_lines, begun = {}, [], 0
    free = list(range(slots))
    while begun < tasks or place_of:
        while begun < tasks and free:
            place = free.pop()
            actions = [(os.POSIX_SPAWN_DUP2, files[place], 1)]
            place_of[os.posix_spawn(LINE[0], LINE, os.environ, file_actions=actions)] = place
            begun += 1
        pid, status = os.wait()
        place = place_of.pop(pid)
        kept_lines.append(os.pread(files[place], 65536, 0))
        os.ftruncate(files[place], 0)
        os.lseek(files[place], 0, os.SEEK_SET)
        free.append(place)
        if status:
            raise SystemExit("a task failed")
    for file in files:
        os.close(file)
    if kept_lines != [LINE[1].encode() + b"\n"] * tasks:
        raise SystemExit("a task's line was lost")


def main():
    tasks, slots, run = int(sys.argv[1]), int(sys.argv[2]), silent if sys.argv[3:] else kept
    print('{"ready": true}', flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        run(tasks, slots)
        seconds = time.perf_counter() - begin
        print(f'{{"tasks": {tasks}, "seconds": {seconds}}}', flush=True)


main()
