/* A program of a user: the header is found, the library is found, and they are of the version that was asked for. */
#include <crumb.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    crumb_error err = {0};
    crumb_model *model = NULL;
    if (crumb_model_open("/nonexistent.gguf", NULL, &model, &err) != CRUMB_ERR_IO) return 1;
    printf("crumb %s: %s\n", crumb_version(), err.message);
    return argc == 2 && strcmp(argv[1], crumb_version()) == 0 ? 0 : 1;
}
