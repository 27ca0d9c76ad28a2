/* The limit, in C: starts TASKS processes, SLOTS in flight, and waits for them; prints the seconds that it took.
   With a third argument they print nothing; else what each prints is read from a file in memory, one for each slot. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char *line[] = {"/bin/echo", "a line of stdout", NULL};
static char *silent[] = {"/bin/true", NULL};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static pid_t start(char **command, int file) {
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (file >= 0) posix_spawn_file_actions_adddup2(&actions, file, 1);
    if (posix_spawn(&pid, command[0], &actions, NULL, command, environ)) exit(1);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static void run(int tasks, int slots, int keeps) {
    pid_t pids[slots];
    int files[slots], begun = 0, ended = 0;
    char text[4096];
    for (int slot = 0; slot < slots; slot++) {
        files[slot] = keeps ? memfd_create("stdout", 0) : -1;
        pids[slot] = 0;
    }
    while (ended < tasks) {
        int status, slot;
        for (slot = 0; slot < slots && begun < tasks; slot++)
            if (!pids[slot]) pids[slot] = start(keeps ? line : silent, files[slot]), begun++;
        pid_t pid = wait(&status);
        if (status) exit(2);
        for (slot = 0; slot < slots && pids[slot] != pid; slot++);
        pids[slot] = 0;
        ended++;
        if (!keeps) continue;
        ssize_t length = pread(files[slot], text, sizeof text, 0);
        if (length != (ssize_t)strlen(line[1]) + 1 || memcmp(text, line[1], length - 1)) exit(3);
        if (ftruncate(files[slot], 0) || lseek(files[slot], 0, SEEK_SET)) exit(4);
    }
    for (int slot = 0; slot < slots; slot++) if (keeps) close(files[slot]);
}

int main(int count, char **words) {
    char go[64];
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (fgets(go, sizeof go, stdin)) {
        double begin = now();
        run(atoi(words[1]), atoi(words[2]), count < 4);
        printf("{\"tasks\": %s, \"seconds\": %f}\n", words[1], now() - begin);
        fflush(stdout);
    }
}
