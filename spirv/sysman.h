/* Sysman, the part of Level Zero that knows of energy and clocks. */
#ifndef CRUMB_ZE_SYSMAN_H
#define CRUMB_ZE_SYSMAN_H

#include "host/backend.h"
#include "spirv/api.h"

/* The domains of one device that are read. */
typedef struct crumb_ze_sysman {
    crumb_ze_sysman_functions z;
    zes_pwr_handle_t power;  /* the one that counts most of the card's energy; NULL: none */
    zes_freq_handle_t clock; /* of what computes; NULL: none */
    char domain[24];         /* of power: "card" */
    uint32_t power_limit_mw, clock_most_mhz;
    char missing[sizeof((crumb_device_sensors *)NULL)->missing]; /* why there is none */
} crumb_ze_sysman;

/* What Sysman has of `device`; where that is nothing, out->missing says why. */
void crumb_ze_sysman_find(const crumb_ze_functions *z, ze_device_handle_t device, crumb_ze_sysman *out);
/* Reads it. *out is all zero before. */
void crumb_ze_sysman_read(const crumb_ze_sysman *s, crumb_device_sensors *out);

#endif
