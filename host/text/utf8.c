/* UTF-8: validity, and a stream that never splits a character. */
#include "host/text/internal.h"

#include <string.h>

/* Length of the character that a lead byte begins (0: none does) and the range its second byte must lie in, which
 * excludes overlong forms, surrogates and what is above U+10FFFF (Unicode, table 3-7). */
static unsigned lead_byte(unsigned char lead, unsigned char *low, unsigned char *high) {
    *low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (lead < 0x80) return 1;
    if (lead < 0xc2) return 0;
    if (lead < 0xe0) return 2;
    if (lead < 0xf0) return 3;
    return lead < 0xf5 ? 4 : 0;
}

crumb_utf8_kind crumb_utf8_next(const char *text, size_t n_bytes, size_t *n_used) {
    const unsigned char *p = (const unsigned char *)text;
    unsigned char low, high;
    unsigned length = lead_byte(p[0], &low, &high);
    *n_used = 1;
    if (length == 0) return CRUMB_UTF8_BROKEN;
    for (; *n_used < length; ++*n_used) {
        if (*n_used == n_bytes) return CRUMB_UTF8_PARTIAL;
        if (p[*n_used] < low || p[*n_used] > high) return CRUMB_UTF8_BROKEN;
        low = 0x80, high = 0xbf;
    }
    return CRUMB_UTF8_WHOLE;
}

size_t crumb_utf8_valid_prefix(const char *text, size_t n_bytes) {
    size_t at = 0, n_used;
    while (at < n_bytes) {
        uint64_t eight;
        if (n_bytes - at >= 8 && (memcpy(&eight, text + at, 8), eight & UINT64_C(0x8080808080808080)) == 0) {
            at += 8;
            continue;
        }
        if (crumb_utf8_next(text + at, n_bytes - at, &n_used) != CRUMB_UTF8_WHOLE) break;
        at += n_used;
    }
    return at;
}

/* Appends a character where it fits. */
static void put(char *out, size_t capacity, size_t *n, const char *bytes, size_t n_bytes) {
    if (capacity - *n < n_bytes) return;
    memcpy(out + *n, bytes, n_bytes);
    *n += n_bytes;
}

size_t crumb_utf8_stream_push(crumb_utf8_stream *s, const char *bytes, size_t n_bytes, char *out, size_t capacity) {
    static const char replacement[] = "\xef\xbf\xbd";
    size_t n_out = 0;
    if (n_bytes == 0) { /* the end: what is pending will never be whole */
        if (s->n_pending) put(out, capacity, &n_out, replacement, 3);
        s->n_pending = 0;
        return n_out;
    }
    while (n_bytes > 0) {
        if (s->n_pending == 0) {
            size_t n_whole = crumb_utf8_valid_prefix(bytes, n_bytes);
            if (n_whole > capacity - n_out) n_whole = crumb_utf8_valid_prefix(bytes, capacity - n_out);
            put(out, capacity, &n_out, bytes, n_whole);
            bytes += n_whole, n_bytes -= n_whole;
            if (n_bytes == 0) break;
        }
        s->pending[s->n_pending++] = (unsigned char)*bytes;
        size_t n_used;
        crumb_utf8_kind kind = crumb_utf8_next((const char *)s->pending, s->n_pending, &n_used);
        bool byte_taken = kind != CRUMB_UTF8_BROKEN || n_used == s->n_pending;
        if (byte_taken) bytes++, n_bytes--; /* else it ended a broken character, and is looked at again */
        if (kind == CRUMB_UTF8_PARTIAL) continue;
        if (kind == CRUMB_UTF8_WHOLE) {
            put(out, capacity, &n_out, (const char *)s->pending, s->n_pending);
        } else {
            put(out, capacity, &n_out, replacement, 3);
        }
        s->n_pending = 0;
    }
    return n_out;
}
