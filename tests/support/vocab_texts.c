#include "tests/support/vocab_texts.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *p, const char *what) {
    if (p) return p;
    perror(what);
    exit(1);
}

char *vocab_read_file(const char *path, size_t *n_bytes) {
    FILE *f = checked(fopen(path, "rb"), path);
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    char *data = checked(malloc((size_t)size + 1), path);
    if (fread(data, 1, (size_t)size, f) != (size_t)size) checked(NULL, path);
    fclose(f);
    data[size] = 0;
    if (n_bytes) *n_bytes = (size_t)size;
    return data;
}

vocab_texts vocab_texts_read(void) {
    const char *path = "tests/oracle/vocabs/texts.json";
    char *data = vocab_read_file(path, NULL);
    cJSON *json = checked(cJSON_Parse(data), path);
    free(data);
    vocab_texts t = {.json = json, .n = (size_t)cJSON_GetArraySize(json)};
    t.texts = checked(calloc(t.n, sizeof *t.texts), path);
    size_t i = 0;
    for (cJSON *item = json->child; item; item = item->next) t.texts[i++] = checked(cJSON_GetStringValue(item), path);
    return t;
}

void vocab_texts_free(vocab_texts *t) {
    cJSON_Delete(t->json);
    free(t->texts);
}

static int digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return (int)((const char *)checked(strchr(digits, c), "a base64 digit") - digits);
}

vocab_ids *vocab_ids_read(const char *name, int n_digits, size_t *n_lines) {
    char path[256];
    snprintf(path, sizeof path, "tests/oracle/vocabs/%s.ids", name);
    char *data = vocab_read_file(path, NULL);
    *n_lines = 0;
    for (const char *p = data; *p; p++) *n_lines += *p == '\n';
    vocab_ids *lines = checked(calloc(*n_lines, sizeof *lines), path);
    const char *p = data;
    for (size_t i = 0; i < *n_lines; i++, p++) {
        lines[i].n = strcspn(p, "\n") / (size_t)n_digits;
        lines[i].ids = checked(malloc((lines[i].n + 1) * sizeof *lines[i].ids), path);
        for (size_t k = 0; k < lines[i].n; k++) {
            int32_t id = 0;
            for (int d = 0; d < n_digits; d++) id = id << 6 | digit(*p++);
            lines[i].ids[k] = id;
        }
    }
    free(data);
    return lines;
}
