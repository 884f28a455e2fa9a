/* What the machine itself needs for the bytes of a broker: no protocol, no records, no answers.
 *
 *   bare receive FILE BYTES   a peer sends BYTES over loopback; they are received, summed (CRC-32C) and written
 *   bare send FILE BYTES      a peer asks for a slice of FILE after the other, until it has BYTES; they go to it over
 *                             loopback, from the page cache, by sendfile
 *
 * Prints the CPU seconds of this side alone, user and system, and the wall seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 128 * 1024, SLICE = 1024 * 1024 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t crc32c(uint32_t crc, const char *data, size_t size) {
    uint64_t sum = crc, word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        sum = _mm_crc32_u64(sum, word);
    }
    while (size--) sum = _mm_crc32_u8((uint32_t)sum, (unsigned char)*data++);
    return (uint32_t)sum;
}

static size_t slice_of(long long bytes) { return bytes < SLICE ? (size_t)bytes : SLICE; }

/* The peer: sends, or asks for and takes `bytes`, and ends. */
static void be_the_peer(int port, int sends, long long bytes) {
    static char buffer[SLICE];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int line = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(line, (struct sockaddr *)&to, sizeof to)) fail("connect");
    while (bytes > 0) {
        if (!sends && send(line, buffer, 1, 0) != 1) fail("ask");
        ssize_t done = sends ? send(line, buffer, slice_of(bytes), 0) : recv(line, buffer, slice_of(bytes), MSG_WAITALL);
        if (done <= 0) fail(sends ? "send" : "recv");
        bytes -= done;
    }
    exit(0);
}

static void receive(int line, int file, long long bytes) {
    static char buffer[CHUNK];
    off_t at = 0;
    uint32_t crc = ~0u;
    while (bytes > 0) {
        ssize_t got = recv(line, buffer, bytes < CHUNK ? (size_t)bytes : CHUNK, MSG_WAITALL);
        if (got <= 0) fail("recv");
        crc = crc32c(crc, buffer, (size_t)got);
        if (pwrite(file, buffer, (size_t)got, at) != got) fail("pwrite");
        at += got;
        bytes -= got;
    }
    fprintf(stderr, "crc %08x\n", ~crc); /* So that it must be computed. */
}

static void give(int line, int file, long long bytes) {
    off_t at = 0;
    char asked;
    while (bytes > 0) {
        size_t left = slice_of(bytes);
        bytes -= (long long)left;
        if (recv(line, &asked, 1, 0) != 1) fail("recv");
        while (left > 0) {
            ssize_t sent = sendfile(line, file, &at, left);
            if (sent <= 0) fail("sendfile");
            left -= (size_t)sent;
        }
    }
}

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: bare receive|send FILE BYTES\n");
        return 2;
    }
    int receives = !strcmp(words[1], "receive");
    long long bytes = atoll(words[3]);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listening, IPPROTO_TCP, TCP_CONGESTION, "reno", 4); /* As the broker: no pacing within the machine. */
    if (bind(listening, (struct sockaddr *)&here, sizeof here) || listen(listening, 1)) fail("listen");
    if (getsockname(listening, (struct sockaddr *)&here, &size)) fail("getsockname");
    pid_t peer = fork();
    if (peer == 0) be_the_peer(here.sin_port, receives, bytes);
    int line = accept(listening, NULL, NULL);
    int file = open(words[2], receives ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY, 0600);
    if (line < 0 || file < 0) fail("open");

    struct rusage before, after;
    struct timespec begun, ended;
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    receives ? receive(line, file, bytes) : give(line, file, bytes);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    getrusage(RUSAGE_SELF, &after);
    int status;
    if (waitpid(peer, &status, 0) != peer || status) fail("peer");
    printf("%.6f %.6f\n",
           seconds(after.ru_utime) - seconds(before.ru_utime) + seconds(after.ru_stime) - seconds(before.ru_stime),
           (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9);
    return 0;
}
