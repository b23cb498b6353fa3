/* Faults of a machine, preloaded into the gateway. A fault lasts while its file is
   in the directory BROKEN_MACHINE:

   disk-hangs   every use of the data directory waits
   disk-errno   every write to the data directory fails with the error number in the file
   clock        seconds by which the wall clock is wrong
   exec-hangs   programs whose path has the text of the file hang while they are executed
   open-hangs   files whose path has the text of the file hang while they are opened */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int fault(const char *name, char *text, size_t size)
{
    const char *place = getenv("BROKEN_MACHINE");
    char path[4096];
    int saved = errno;
    snprintf(path, sizeof path, "%s/%s", place ? place : "/nowhere", name);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        ssize_t got = syscall(SYS_read, file, text, size - 1);
        text[got > 0 ? got : 0] = 0;
        syscall(SYS_close, file);
    }
    errno = saved;
    return file >= 0;
}

static void hang(const char *name, const char *path)
{
    char text[256];
    while (fault(name, text, sizeof text) && (!path || strstr(path, text)))
        usleep(10000);
}

static int is_ours(const char *path)
{
    return path && strstr(path, "/.mcpvisor") != NULL;
}

static int is_file(int file)
{
    struct stat about;
    int saved = errno;
    int found = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
    errno = saved;
    return found;
}

/* Whether a write to the disk fails; it may hang before. */
static int fails(void)
{
    char text[32];
    hang("disk-hangs", NULL);
    if (!fault("disk-errno", text, sizeof text))
        return 0;
    errno = atoi(text);
    return 1;
}

ssize_t write(int file, const void *data, size_t size)
{
    return is_file(file) && fails() ? -1 : REAL(write)(file, data, size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at)
{
    return fails() ? -1 : REAL(pwrite64)(file, data, size, at);
}

int ftruncate64(int file, off64_t size)
{
    return fails() ? -1 : REAL(ftruncate64)(file, size);
}

int fdatasync(int file)
{
    return fails() ? -1 : REAL(fdatasync)(file);
}

int fsync(int file)
{
    return fails() ? -1 : REAL(fsync)(file);
}

int rename(const char *from, const char *to)
{
    return is_ours(to) && fails() ? -1 : REAL(rename)(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    return is_ours(path) && fails() ? -1 : REAL(mkdir)(path, mode);
}

int statx(int at, const char *path, int flags, unsigned mask, struct statx *about)
{
    if (is_ours(path))
        hang("disk-hangs", NULL);
    return REAL(statx)(at, path, flags, mask, about);
}

static int opened(const char *path, int flags)
{
    hang("open-hangs", path);
    if (!is_ours(path))
        return 0;
    if (flags & O_CREAT)
        return fails();
    hang("disk-hangs", NULL);
    return 0;
}

int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return opened(path, flags) ? -1 : REAL(open64)(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return opened(path, flags) ? -1 : REAL(open)(path, flags, mode);
}

int execvp(const char *path, char *const arguments[])
{
    hang("exec-hangs", path);
    return REAL(execvp)(path, arguments);
}

static long wrong_by(void)
{
    char text[32];
    return fault("clock", text, sizeof text) ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += wrong_by();
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}
