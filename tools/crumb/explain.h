/* --explain: which device ran which layers and why, what was predicted, and what was measured. */
#ifndef CRUMB_TOOLS_EXPLAIN_H
#define CRUMB_TOOLS_EXPLAIN_H

#include "tools/crumb/json_util.h"

void cli_explain(const crumb_session *s); /* of all that it has run; on stderr */
cJSON *cli_explain_json(const crumb_session *s);

#endif
