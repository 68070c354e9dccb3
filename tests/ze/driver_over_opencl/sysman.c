/* Sysman: a card whose energy counter counts the lists that it has been given. */
#include "driver.h"

#include <level_zero/zes_api.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Domains: of energy that of the memory comes first, which is not the card's; of clocks the media engines'. */
static struct _zes_pwr_handle_t {
    zes_power_domain_t domain;
} power_domains[] = {{ZES_POWER_DOMAIN_MEMORY}, {ZES_POWER_DOMAIN_PACKAGE}, {ZES_POWER_DOMAIN_CARD}};
static struct _zes_freq_handle_t {
    zes_freq_domain_t type;
} clock_domains[] = {{ZES_FREQ_DOMAIN_MEDIA}, {ZES_FREQ_DOMAIN_GPU}};
enum {
    N_POWER = sizeof power_domains / sizeof *power_domains,
    N_CLOCKS = sizeof clock_domains / sizeof *clock_domains
};

static atomic_ullong energy_uj;

void count_list(void) {
    atomic_fetch_add(&energy_uj, LIST_UJ);
}

static bool is_set(const char *how) {
    const char *sysman = getenv("CRUMB_DRIVER_SYSMAN");
    return sysman && strcmp(sysman, how) == 0;
}

ze_result_t ZE_APICALL zesInit(zes_init_flags_t flags) {
    CALL();
    return flags ? ZE_RESULT_ERROR_INVALID_ENUMERATION : ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zesDriverGet(uint32_t *n, zes_driver_handle_t *out) {
    CALL();
    if (*n && out) *out = &the_driver;
    *n = 1;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zesDeviceGet(zes_driver_handle_t driver, uint32_t *n, zes_device_handle_t *out) {
    CALL();
    (void)driver;
    if (*n && out) *out = &the_device;
    *n = 1;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zesDeviceGetProperties(zes_device_handle_t device, zes_device_properties_t *out) {
    CALL();
    (void)device;
    out->core.uuid = the_uuid;
    return ZE_RESULT_SUCCESS;
}

/* ---- energy -------------------------------------------------------------------------------------------------------
 */

ze_result_t ZE_APICALL zesDeviceEnumPowerDomains(zes_device_handle_t device, uint32_t *n, zes_pwr_handle_t *out) {
    const uint32_t there = is_set("none") ? 0 : N_POWER;
    CALL();
    (void)device;
    for (uint32_t i = 0; out && i < *n && i < there; i++) out[i] = &power_domains[i];
    if (*n == 0 || *n > there) *n = there;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zesPowerGetProperties(zes_pwr_handle_t power, zes_power_properties_t *out) {
    CALL();
    zes_power_ext_properties_t *more = out->pNext;
    if (more && more->stype == ZES_STRUCTURE_TYPE_POWER_EXT_PROPERTIES) more->domain = power->domain;
    out->onSubdevice = false;
    out->defaultLimit = 190000;
    return ZE_RESULT_SUCCESS;
}

/* Only the card's counts lists; others that it were taken for would show. */
ze_result_t ZE_APICALL zesPowerGetEnergyCounter(zes_pwr_handle_t power, zes_power_energy_counter_t *out) {
    CALL();
    if (is_set("denied")) return ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS;
    out->energy = power->domain == ZES_POWER_DOMAIN_CARD ? atomic_fetch_add(&energy_uj, READING_UJ) : 7;
    out->timestamp = 0;
    return ZE_RESULT_SUCCESS;
}

/* ---- clocks -------------------------------------------------------------------------------------------------------
 */

ze_result_t ZE_APICALL zesDeviceEnumFrequencyDomains(zes_device_handle_t device, uint32_t *n, zes_freq_handle_t *out) {
    const uint32_t there = is_set("none") ? 0 : N_CLOCKS;
    CALL();
    (void)device;
    for (uint32_t i = 0; out && i < *n && i < there; i++) out[i] = &clock_domains[i];
    if (*n == 0 || *n > there) *n = there;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zesFrequencyGetProperties(zes_freq_handle_t clock, zes_freq_properties_t *out) {
    CALL();
    out->type = clock->type;
    out->onSubdevice = false;
    out->max = clock->type == ZES_FREQ_DOMAIN_GPU ? 2850 : 1500;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zesFrequencyGetState(zes_freq_handle_t clock, zes_freq_state_t *out) {
    CALL();
    if (is_set("denied")) return ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS;
    out->actual = clock->type == ZES_FREQ_DOMAIN_GPU ? 2400 : 700;
    out->throttleReasons = ZES_FREQ_THROTTLE_REASON_FLAG_AVE_PWR_CAP | ZES_FREQ_THROTTLE_REASON_FLAG_THERMAL_LIMIT;
    return ZE_RESULT_SUCCESS;
}
