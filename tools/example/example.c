/* Continues a text with libcrumb:
 *     cc example.c $(pkg-config --cflags --libs crumb) -o example && ./example [MODEL.gguf [PROMPT]] */
#include <crumb.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PROMPT = 1024, MAX_NEW = 64, MAX_PIECE = 80 };

/* Every call that fails has written a message for people and a status for programs. */
static crumb_status generate(crumb_model *model, crumb_session *session, const char *prompt, crumb_error *err) {
    int32_t tokens[MAX_PROMPT], token;
    size_t n;
    unsigned flags = CRUMB_TOKENIZE_ADD_SPECIAL | CRUMB_TOKENIZE_PARSE_SPECIAL;
    crumb_status status = crumb_model_tokenize(model, prompt, strlen(prompt), flags, tokens, MAX_PROMPT, &n, err);
    if (status == CRUMB_OK) status = crumb_session_feed(session, tokens, n, err);
    if (status != CRUMB_OK) return status;

    crumb_model_info info;
    crumb_model_get_info(model, &info);
    const float *logits = crumb_session_logits(session); /* of the token that comes next */
    uint32_t best = 0;
    for (uint32_t t = 1; t < info.n_vocab; t++)
        if (logits[t] > logits[best]) best = t;
    fprintf(stderr, "%s on %s: likeliest token %u, logit %.2f\n", info.name, info.device, best, (double)logits[best]);

    crumb_utf8_stream utf8 = {0}; /* a token may end in the middle of a character */
    fputs(prompt, stdout);
    for (int i = 0; i < MAX_NEW; i++) {
        char text[3 * MAX_PIECE + 16];
        bool ended;
        status = crumb_session_step(session, &token, &ended, err);
        if (status != CRUMB_OK || ended) break;
        const char *bytes = crumb_model_token_bytes(model, token, false, &n);
        fwrite(text, 1, crumb_utf8_stream_push(&utf8, bytes, n < MAX_PIECE ? n : MAX_PIECE, text, sizeof text), stdout);
    }
    puts("");
    return status;
}

int main(int argc, char **argv) {
    crumb_error err = {0};
    crumb_model *model = NULL;
    crumb_session *session = NULL;
    crumb_status status =
        argc > 1 ? crumb_model_open(argv[1], NULL, &model, &err) : crumb_model_open_embedded(NULL, &model, &err);
    if (status == CRUMB_OK) {
        crumb_session_params params = crumb_session_params_default();
        params.seed = 1; /* the same text every time */
        status = crumb_session_create(model, &params, &session, &err);
    }
    if (status == CRUMB_OK) status = generate(model, session, argc > 2 ? argv[2] : "Once upon a time", &err);
    if (status != CRUMB_OK) fprintf(stderr, "example: %s\n", err.message);
    crumb_session_destroy(session);
    crumb_model_close(model);
    return crumb_status_exit_code(status);
}
