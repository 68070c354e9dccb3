/* Runs a fuzzer's function over every file of a folder, so that the corpus is a test with any compiler. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An exact allocation, so that a sanitizer sees a read past the end. */
static int replay_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    uint8_t *data = size >= 0 ? malloc(size > 0 ? (size_t)size : 1) : NULL;
    int ok = data && fread(data, 1, (size_t)size, f) == (size_t)size;
    fclose(f);
    if (ok) LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return ok ? 0 : -1;
}

int main(int argc, char **argv) {
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) return fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]), 2;
    unsigned n = 0, n_failed = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        char path[4096];
        if (snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name) >= (int)sizeof path) return 2;
        n++;
        if (replay_file(path) != 0) n_failed += (unsigned)fprintf(stderr, "%s: cannot be read\n", path) > 0;
    }
    closedir(folder);
    printf("%u inputs replayed\n", n);
    return n > 0 && n_failed == 0 ? 0 : 1;
}
