/* Special tokens: finding them in a text. The list is sorted, so that it can be walked like a trie: each further byte
 * of the text narrows the range of entries that still agree with it.
 */
#include "host/base/memory.h"
#include "host/text/internal.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    const crumb_bytes *x = &((const crumb_special *)a)->text, *y = &((const crumb_special *)b)->text;
    int order = memcmp(x->data, y->data, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

crumb_status crumb_specials_create(const crumb_vocab *v, unsigned attributes, crumb_specials *out, crumb_error *err) {
    size_t n = 0;
    for (uint32_t i = 0; i < v->n_tokens; i++) n += (v->attributes[i] & attributes) != 0;
    void *list;
    CRUMB_TRY(crumb_calloc(n + 1, sizeof(crumb_special), "the special tokens", &list, err));
    *out = (crumb_specials){.list = list};
    n = 0;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        crumb_bytes text = crumb_vocab_text(v, (int32_t)i);
        if ((v->attributes[i] & attributes) && text.size) out->list[n++] = (crumb_special){text, (int32_t)i};
    }
    qsort(out->list, n, sizeof *out->list, compare);
    for (size_t i = 0; i < n; i++) out->first[(unsigned char)out->list[i].text.data[0] + 1]++;
    for (int c = 0; c < 256; c++) out->first[c + 1] += out->first[c];
    return CRUMB_OK;
}

void crumb_specials_destroy(crumb_specials *s) {
    free(s->list);
}

/* The first entry of list[low..high) whose byte at `depth` is at least c; all of them are longer than depth. */
static uint32_t lower_bound(const crumb_special *list, uint32_t low, uint32_t high, size_t depth, unsigned c) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((unsigned char)list[middle].text.data[depth] < c) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

const crumb_special *crumb_specials_match(const crumb_specials *s, const char *text, size_t n_bytes, size_t at) {
    unsigned c = (unsigned char)text[at];
    uint32_t low = s->first[c], high = s->first[c + 1];
    const crumb_special *longest = NULL;
    for (size_t depth = 1; low < high; depth++) {
        if (s->list[low].text.size == depth) longest = &s->list[low++];
        if (at + depth >= n_bytes) break;
        c = (unsigned char)text[at + depth];
        low = lower_bound(s->list, low, high, depth, c);
        high = lower_bound(s->list, low, high, depth, c + 1);
    }
    return longest;
}
