/* Which devices there are. Drivers are asked by a process of its own (crumb-cl-survey, beside this module),
 * which may crash or hang without harm; its answer is kept in the user's cache for as long as drivers, kernel and
 * render nodes stay the same. */
#ifndef CRUMB_CL_DISCOVER_H
#define CRUMB_CL_DISCOVER_H

#include "cl/facts.h"
#include "host/backend.h"
#include "host/base/file.h"

typedef struct crumb_cl_found {
    size_t n;
    crumb_cl_facts device[CRUMB_CL_MAX_DEVICES]; /* in the order of their names: discrete, integrated, CPU type */
    char note[400]; /* why there is no GPU and what to do; a driver that failed; empty: nothing to say */
} crumb_cl_found;

/* The files that the API's loader finds drivers by: an answer holds for these, and each can be asked alone. */
enum { CRUMB_CL_MAX_DRIVERS = 32 };
typedef struct crumb_cl_driver_files {
    size_t n;
    struct {
        crumb_folder_entry entry;
        char path[600 + sizeof(crumb_folder_entry)];
        bool is_text;   /* what its first line says counts too */
        bool is_driver; /* it can be asked alone; else the answer only depends on it */
    } file[CRUMB_CL_MAX_DRIVERS];
    bool more; /* there may be drivers without such a file */
} crumb_cl_driver_files;
void crumb_cl_driver_files_find(crumb_cl_driver_files *out); /* the API's own */

/* The path of the program that asks drivers, beside the module; false: there is no knowing where that is. */
bool crumb_cl_survey_program(char *out, size_t size);

void crumb_cl_discover(crumb_cl_found *out);
/* Forgets the answer that is kept: a device was not where it said. */
void crumb_cl_discover_again(void);

/* "gpu3" for the fourth of crumb_cl_found.device. */
void crumb_cl_device_name(size_t index, char out[16]);
void crumb_cl_describe(const crumb_cl_facts *f, size_t index, crumb_device_listing *out);

#endif
