/* Operators, with Python's rules. */
#include "host/jinja/evaluate.h"

#include <math.h>
#include <string.h>

static crumb_status refuse(crumb_jinja_run *r, uint16_t op, const crumb_jinja_value *a, const crumb_jinja_value *b) {
    const char text[3] = {(char)op, (char)(op >> 8), 0};
    const crumb_jinja_value *u = a->kind == CRUMB_JINJA_UNDEFINED ? a : b;
    if (u->kind == CRUMB_JINJA_UNDEFINED)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "'%.*s' is undefined",
                                (int)(u->as.text.n_bytes < 60 ? u->as.text.n_bytes : 60), u->as.text.bytes);
    return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "values of type %s and %s have no operator %s",
                            crumb_jinja_type_name(a), crumb_jinja_type_name(b), text);
}

/* ---- numbers ----------------------------------------------------------------------------------------------- */

static bool power(int64_t base, int64_t exponent, int64_t *out) {
    *out = 1;
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(*out, base, out))
            return false;
        else if (*out == base && (base == 0 || base == 1))
            return true;
    return true;
}

/* Division and remainder round towards minus infinity. */
static crumb_status integers(crumb_jinja_run *r, uint16_t op, int64_t a, int64_t b, crumb_jinja_value *out) {
    int64_t result = 0;
    bool fits = true;
    const bool divides = op == '%' || op == CRUMB_JINJA_OP2('/', '/');
    if (divides && b == 0) return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "division by zero");
    if (op == '+') fits = !__builtin_add_overflow(a, b, &result);
    if (op == '-') fits = !__builtin_sub_overflow(a, b, &result);
    if (op == '*') fits = !__builtin_mul_overflow(a, b, &result);
    if (op == CRUMB_JINJA_OP2('*', '*'))
        fits = (a >= -1 && a <= 1 ? power(a, b & 1 ? 1 : 2, &result) : b < 64 && power(a, b, &result));
    if (op == CRUMB_JINJA_OP2('*', '*') && b == 0) result = 1, fits = true;
    if (divides && b == -1) { /* INT64_MIN / -1 */
        fits = op == '%' || !__builtin_sub_overflow((int64_t)0, a, &result);
    } else if (divides) {
        const bool inexact = a % b != 0 && (a % b < 0) != (b < 0);
        result = op == '%' ? a % b + (inexact ? b : 0) : a / b - (inexact ? 1 : 0);
    }
    if (!fits)
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "a number of more than 64 bits is not supported");
    *out = crumb_jinja_integer(result);
    return CRUMB_OK;
}

static crumb_status reals(crumb_jinja_run *r, uint16_t op, double a, double b, crumb_jinja_value *out) {
    const bool divides = op == '/' || op == '%' || op == CRUMB_JINJA_OP2('/', '/');
    double result = 0;
    if (divides && b == 0) return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "division by zero");
    switch (op) {
    case '+': result = a + b; break;
    case '-': result = a - b; break;
    case '*': result = a * b; break;
    case '/': result = a / b; break;
    case '%': result = fmod(a, b); break;
    case CRUMB_JINJA_OP2('/', '/'): result = floor(a / b); break;
    default: result = pow(a, b); break;
    }
    if (op == '%' && result != 0 && (result < 0) != (b < 0)) result += b;
    *out = crumb_jinja_real(result);
    return CRUMB_OK;
}

static crumb_status numbers(crumb_jinja_run *r, uint16_t op, const crumb_jinja_value *a, const crumb_jinja_value *b,
                            crumb_jinja_value *out) {
    int64_t i, j;
    const bool whole = crumb_jinja_get_integer(a, &i) && crumb_jinja_get_integer(b, &j);
    const bool fraction = op == '/' || (op == CRUMB_JINJA_OP2('*', '*') && whole && j < 0);
    if (whole && !fraction) return integers(r, op, i, j, out);
    return reals(r, op, crumb_jinja_get_real(a), crumb_jinja_get_real(b), out);
}

/* ---- texts and lists --------------------------------------------------------------------------------------- */

static crumb_status concatenate(crumb_jinja_run *r, const crumb_jinja_value *a, const crumb_jinja_value *b,
                                crumb_jinja_value *out) {
    crumb_jinja_writer w = {.state = r->state};
    if (a->is_markup || b->is_markup)
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED,
                                "joining texts behind the filter 'safe' is not supported");
    crumb_jinja_text first, second;
    CRUMB_TRY(crumb_jinja_to_text(r->state, a, &first));
    CRUMB_TRY(crumb_jinja_to_text(r->state, b, &second));
    crumb_jinja_expect(&w, first.n_bytes + second.n_bytes); /* both are in memory: the sum does not overflow */
    crumb_jinja_write(&w, first);
    crumb_jinja_write(&w, second);
    return crumb_jinja_finish(&w, out);
}

static crumb_status join_lists(crumb_jinja_run *r, const crumb_jinja_list *a, const crumb_jinja_list *b,
                               crumb_jinja_value *out) {
    crumb_jinja_value *items;
    CRUMB_TRY(crumb_jinja_make_list(r->state, a->n + b->n, a->is_tuple, &items, out));
    if (a->n) memcpy(items, a->items, a->n * sizeof *items);
    if (b->n) memcpy(items + a->n, b->items, b->n * sizeof *items);
    return CRUMB_OK;
}

static crumb_status repeat(crumb_jinja_run *r, const crumb_jinja_value *v, int64_t times, crumb_jinja_value *out) {
    crumb_jinja_writer w = {.state = r->state};
    crumb_jinja_value *items;
    if (times < 0) times = 0;
    CRUMB_TRY(crumb_jinja_spend(r->state, (uint64_t)times));
    if (v->kind == CRUMB_JINJA_STRING) {
        for (int64_t i = 0; i < times && !w.failed; i++) crumb_jinja_write(&w, v->as.text);
        return crumb_jinja_finish(&w, out);
    }
    const crumb_jinja_list *list = v->as.list;
    CRUMB_TRY(crumb_jinja_spend(r->state, list->n ? (uint64_t)times : 0));
    CRUMB_TRY(crumb_jinja_make_list(r->state, list->n * (size_t)times, list->is_tuple, &items, out));
    for (int64_t i = 0; i < times && list->n; i++)
        memcpy(items + (size_t)i * list->n, list->items, list->n * sizeof *items);
    return CRUMB_OK;
}

crumb_status crumb_jinja_binary(crumb_jinja_run *r, uint16_t op, const crumb_jinja_value *a, const crumb_jinja_value *b,
                                crumb_jinja_value *out) {
    int64_t times;
    if (op == '~') return concatenate(r, a, b, out);
    if (crumb_jinja_is_number(a) && crumb_jinja_is_number(b)) return numbers(r, op, a, b, out);
    const bool lists = a->kind == CRUMB_JINJA_LIST && b->kind == CRUMB_JINJA_LIST;
    if (op == '+' && a->kind == CRUMB_JINJA_STRING && b->kind == CRUMB_JINJA_STRING) return concatenate(r, a, b, out);
    if (op == '+' && lists && a->as.list->is_tuple == b->as.list->is_tuple)
        return join_lists(r, a->as.list, b->as.list, out);
    const bool first = a->kind == CRUMB_JINJA_STRING || a->kind == CRUMB_JINJA_LIST;
    const bool second = b->kind == CRUMB_JINJA_STRING || b->kind == CRUMB_JINJA_LIST;
    if (op == '*' && first && crumb_jinja_get_integer(b, &times)) return repeat(r, a, times, out);
    if (op == '*' && second && crumb_jinja_get_integer(a, &times)) return repeat(r, b, times, out);
    if (op == '%' && a->kind == CRUMB_JINJA_STRING)
        return crumb_jinja_fail(r->state, CRUMB_ERR_UNSUPPORTED, "formatting with %% is not supported");
    return refuse(r, op, a, b);
}

/* ---- relations --------------------------------------------------------------------------------------------- */

crumb_status crumb_jinja_iterate(crumb_jinja_run *r, const crumb_jinja_value *v, const crumb_jinja_list **out) {
    crumb_jinja_value *items, list;
    size_t i = 0;
    if (v->kind == CRUMB_JINJA_LIST) return *out = v->as.list, CRUMB_OK;
    const bool text = v->kind == CRUMB_JINJA_STRING;
    if (!text && v->kind != CRUMB_JINJA_DICT && v->kind != CRUMB_JINJA_UNDEFINED)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "a value of type %s has no items",
                                crumb_jinja_type_name(v));
    const size_t n = text ? crumb_jinja_text_length(v->as.text) : v->kind == CRUMB_JINJA_DICT ? v->as.dict->n : 0;
    CRUMB_TRY(crumb_jinja_make_list(r->state, n, false, &items, &list));
    for (size_t at = 0; text && at < v->as.text.n_bytes; i++) {
        const size_t end = at + crumb_jinja_character_bytes(v->as.text, at);
        items[i] = crumb_jinja_string(crumb_jinja_text_part(v->as.text, at, end));
        at = end;
    }
    for (; v->kind == CRUMB_JINJA_DICT && i < n; i++) items[i] = v->as.dict->entries[i].key;
    *out = list.as.list;
    return CRUMB_OK;
}

static crumb_status contains(crumb_jinja_run *r, const crumb_jinja_value *v, const crumb_jinja_value *in, bool *out) {
    const crumb_jinja_list *list;
    const crumb_jinja_value *found;
    *out = false;
    if (in->kind == CRUMB_JINJA_STRING) {
        if (v->kind != CRUMB_JINJA_STRING) return refuse(r, 'i' | 'n' << 8, v, in);
        *out = crumb_jinja_text_find(in->as.text, v->as.text, 0) != SIZE_MAX;
        return crumb_jinja_spend(r->state, in->as.text.n_bytes / 64);
    }
    if (in->kind == CRUMB_JINJA_DICT) {
        CRUMB_TRY(crumb_jinja_check_key(r->state, v));
        CRUMB_TRY(crumb_jinja_dict_find(r->state, in->as.dict, v, &found));
        *out = found != NULL;
        return CRUMB_OK;
    }
    CRUMB_TRY(crumb_jinja_iterate(r, in, &list));
    CRUMB_TRY(crumb_jinja_spend(r->state, list->n / 4));
    for (size_t i = 0; i < list->n && !*out; i++) CRUMB_TRY(crumb_jinja_equal(r->state, &list->items[i], v, out));
    return CRUMB_OK;
}

crumb_status crumb_jinja_relation(crumb_jinja_run *r, uint16_t op, const crumb_jinja_value *a,
                                  const crumb_jinja_value *b, bool *out) {
    int order;
    switch (op) {
    case CRUMB_JINJA_OP_IN: return contains(r, a, b, out);
    case CRUMB_JINJA_OP_NOT_IN:
        CRUMB_TRY(contains(r, a, b, out));
        *out = !*out;
        return CRUMB_OK;
    case CRUMB_JINJA_OP2('=', '='): return crumb_jinja_equal(r->state, a, b, out);
    case CRUMB_JINJA_OP2('!', '='):
        CRUMB_TRY(crumb_jinja_equal(r->state, a, b, out));
        *out = !*out;
        return CRUMB_OK;
    default: break;
    }
    if (a->kind == CRUMB_JINJA_UNDEFINED || b->kind == CRUMB_JINJA_UNDEFINED) return refuse(r, op, a, b);
    CRUMB_TRY(crumb_jinja_compare(r->state, a, b, &order));
    *out = op == '<' ? order < 0 : op == '>' ? order > 0 : op == CRUMB_JINJA_OP2('<', '=') ? order <= 0 : order >= 0;
    return CRUMB_OK;
}

/* ---- slices ------------------------------------------------------------------------------------------------ */

/* One end of a slice of n items, as slice.indices() finds it. */
static crumb_status slice_end(crumb_jinja_run *r, const crumb_jinja_value *v, int64_t missing, int64_t n, int64_t step,
                              int64_t *out) {
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    *out = missing;
    if (v->kind == CRUMB_JINJA_NONE) return CRUMB_OK;
    CRUMB_TRY(crumb_jinja_to_integer(r, v, "a slice", out));
    if (*out < 0) *out = *out < -n ? -1 : *out + n;
    *out = *out < low ? low : *out > high ? high : *out;
    return CRUMB_OK;
}

static crumb_status slice_list(crumb_jinja_run *r, const crumb_jinja_list *list, int64_t begin, int64_t step,
                               uint64_t n, crumb_jinja_value *out) {
    crumb_jinja_value *items;
    CRUMB_TRY(crumb_jinja_make_list(r->state, n, list->is_tuple, &items, out));
    for (uint64_t i = 0; i < n; i++) items[i] = list->items[begin + (int64_t)i * step];
    return CRUMB_OK;
}

crumb_status crumb_jinja_slice(crumb_jinja_run *r, const crumb_jinja_value *of, const crumb_jinja_value part[3],
                               crumb_jinja_value *out) {
    const crumb_jinja_list *list;
    crumb_jinja_writer w = {.state = r->state};
    int64_t begin, end, step = 1;
    const bool text = of->kind == CRUMB_JINJA_STRING;
    if (of->kind == CRUMB_JINJA_UNDEFINED) return crumb_jinja_member(r, of, crumb_jinja_literal("[:]").as.text, out);
    if (!text && of->kind != CRUMB_JINJA_LIST)
        return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "a value of type %s has no slices",
                                crumb_jinja_type_name(of));
    if (part[2].kind != CRUMB_JINJA_NONE) CRUMB_TRY(crumb_jinja_to_integer(r, &part[2], "a slice", &step));
    if (step == 0) return crumb_jinja_fail(r->state, CRUMB_ERR_FORMAT, "a slice's step is zero");
    if (step < -INT32_MAX || step > INT32_MAX) step = step < 0 ? -INT32_MAX : INT32_MAX; /* longer than any text */
    if (text) CRUMB_TRY(crumb_jinja_spend(r->state, of->as.text.n_bytes / 64));
    const int64_t n = text ? (int64_t)crumb_jinja_text_length(of->as.text) : (int64_t)of->as.list->n;
    CRUMB_TRY(slice_end(r, &part[0], step < 0 ? n - 1 : 0, n, step, &begin));
    CRUMB_TRY(slice_end(r, &part[1], step < 0 ? -1 : n, n, step, &end));
    const int64_t span = step < 0 ? begin - end : end - begin, size = step < 0 ? -step : step;
    const uint64_t n_out = span <= 0 ? 0 : (uint64_t)((span + size - 1) / size);
    if (!text) return slice_list(r, of->as.list, begin, step, n_out, out);
    if (step == 1 || n_out == 0) {
        const size_t from = crumb_jinja_text_offset(of->as.text, (size_t)begin);
        const crumb_jinja_text rest = crumb_jinja_text_part(of->as.text, from, of->as.text.n_bytes);
        *out = crumb_jinja_string(crumb_jinja_text_part(rest, 0, crumb_jinja_text_offset(rest, (size_t)n_out)));
        return CRUMB_OK;
    }
    CRUMB_TRY(crumb_jinja_iterate(r, of, &list));
    for (uint64_t i = 0; i < n_out; i++) crumb_jinja_write(&w, list->items[begin + (int64_t)i * step].as.text);
    return crumb_jinja_finish(&w, out);
}
