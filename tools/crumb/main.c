/* The command: finds the subcommand, parses its options, runs it. */
#include "tools/crumb/pages.h"

#include <signal.h>
#include <string.h>

static int unknown_subcommand(const char *name) {
    const char *names[16];
    for (size_t i = 0; i < cli_n_subcommands; i++) names[i] = cli_subcommands[i].name;
    if (name[0] == '-')
        cli_error("'%s' stands before a command; try 'crumb run %s ...'", name, name);
    else
        cli_error("unknown command '%s'; did you mean 'crumb %s'?", name, cli_nearest(name, names, cli_n_subcommands));
    return CLI_EXIT_USAGE;
}

static int run(const cli_subcommand *command, const cli_options *options) {
    if (options->help) return page_subcommand(command), CLI_EXIT_OK;
    if (options->list_devices) return cli_list_devices(), CLI_EXIT_OK;
    cli_set_quiet(options->quiet);
    if (command->bit != CLI_RUN) cli_say_notes(options);
    return command->run(options);
}

static int dispatch(int argc, char **argv) {
    static cli_options options;
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) return page_overview(), CLI_EXIT_OK;
    if (strcmp(name, "--version") == 0) return cli_print("crumb %s\n", crumb_version()), CLI_EXIT_OK;
    const cli_subcommand *command = cli_subcommand_find(name);
    if (!command) return unknown_subcommand(name);
    int code = cli_options_parse(name, command->bit, argc - 2, argv + 2, &options);
    if (code == CLI_EXIT_OK) code = run(command, &options);
    cli_options_release(&options);
    return code;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away is noticed when writing */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file that may not grow */
    return cli_finish_output(dispatch(argc, argv));
}
