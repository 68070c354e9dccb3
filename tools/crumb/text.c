/* Texts that come from files and the command line. */
#include "tools/crumb/cli.h"

#include "host/base/error.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static crumb_status read_stream(FILE *in, const char *name, char **text, size_t *n_bytes, crumb_error *err) {
    size_t capacity = 1 << 16, n = 0;
    char *buffer = malloc(capacity);
    while (buffer) {
        n += fread(buffer + n, 1, capacity - n - 1, in);
        if (n < capacity - 1) break;
        char *larger = capacity <= SIZE_MAX / 2 ? realloc(buffer, capacity *= 2) : NULL;
        if (!larger) free(buffer);
        buffer = larger;
    }
    if (!buffer) return crumb_fail(err, CRUMB_ERR_MEMORY, "%s: too large for memory", name);
    if (ferror(in)) {
        free(buffer);
        return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", name, strerror(errno));
    }
    buffer[n] = 0;
    *text = buffer;
    *n_bytes = n;
    return CRUMB_OK;
}

crumb_status cli_read_file(const char *path, char **text, size_t *n_bytes, crumb_error *err) {
    if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", text, n_bytes, err);
    FILE *in = fopen(path, "rb");
    if (!in) return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", path, strerror(errno));
    crumb_status status = read_stream(in, path, text, n_bytes, err);
    fclose(in);
    return status;
}

static int hex_digit(char c) {
    return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

size_t cli_unescape(char *text, size_t n_bytes) {
    static const char names[] = "ntr'\"\\", values[] = "\n\t\r'\"\\";
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        const char *known = text[i] == '\\' && i + 1 < n_bytes ? memchr(names, text[i + 1], sizeof names - 1) : NULL;
        bool hex = text[i] == '\\' && i + 3 < n_bytes && text[i + 1] == 'x' && hex_digit(text[i + 2]) >= 0 &&
                   hex_digit(text[i + 3]) >= 0;
        if (hex) {
            text[n++] = (char)(hex_digit(text[i + 2]) * 16 + hex_digit(text[i + 3]));
            i += 3;
        } else if (known) {
            text[n++] = values[known - names];
            i++;
        } else {
            text[n++] = text[i];
        }
    }
    text[n] = 0;
    return n;
}

/* Bytes of the well-formed UTF-8 character at p (Unicode 15, table 3-7), 0 if there is none. */
static size_t utf8_length(const unsigned char *p, size_t n) {
    if (p[0] < 0x80) return 1;
    size_t length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || length > n) return 0;
    unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high) return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return length;
}

char *cli_printable(const char *bytes, size_t n_bytes) {
    const unsigned char *p = (const unsigned char *)bytes;
    char *out = n_bytes < SIZE_MAX / 4 ? malloc(4 * n_bytes + 1) : NULL, *to = out;
    for (size_t i = 0; out && i < n_bytes;) {
        size_t length = utf8_length(p + i, n_bytes - i);
        bool control = length == 1 ? p[i] < 0x20 || p[i] == 0x7f : length == 2 && p[i] == 0xc2 && p[i + 1] < 0xa0;
        if (length > 0 && !control) {
            memcpy(to, p + i, length);
            to += length;
            i += length;
            continue;
        }
        const char *name = p[i] == '\n' ? "\\n" : p[i] == '\t' ? "\\t" : p[i] == '\r' ? "\\r" : NULL;
        for (size_t end = i + (length ? length : 1); i < end; i++)
            to += name ? sprintf(to, "%s", name) : sprintf(to, "\\x%02x", p[i]);
    }
    if (out) *to = 0;
    return out;
}

crumb_status cli_prompt(const cli_options *options, char **text, size_t *n_bytes, crumb_error *err) {
    *text = NULL;
    *n_bytes = 0;
    if (options->prompt_file && !options->prompt) {
        CRUMB_TRY(cli_read_file(options->prompt_file, text, n_bytes, err));
        /* As llama.cpp: the newline that every text file ends with is not part of the prompt. */
        if (*n_bytes > 0 && (*text)[*n_bytes - 1] == '\n') (*text)[--*n_bytes] = 0;
        return CRUMB_OK;
    }
    if (!options->prompt) return CRUMB_OK;
    *text = strdup(options->prompt);
    if (!*text) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for the prompt");
    *n_bytes = options->escape ? cli_unescape(*text, strlen(*text)) : strlen(*text);
    return CRUMB_OK;
}
