#include "spirv/sysman.h"

#include "host/kernel/energy.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DRIVERS = 16, MAX_DEVICES = 64, MAX_DOMAINS = 32 };

/* What a call's failure means to a user; `what` is what could not be read. */
static void miss(crumb_device_sensors *out, const char *what, const char *call, ze_result_t code) {
    switch (code) {
    case ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS:
        crumb_sensors_miss(out,
                           "%s may not be read by this user: run as root, or let the user read the card's files "
                           "under /sys (hwmon, intel_pmt)",
                           what);
        break;
    case ZE_RESULT_ERROR_UNSUPPORTED_FEATURE:
    case ZE_RESULT_ERROR_UNSUPPORTED_VERSION: crumb_sensors_miss(out, "the driver does not tell %s", what); break;
    case ZE_RESULT_ERROR_UNINITIALIZED:
        crumb_sensors_miss(out, "no driver has Sysman here (%s: ZE_RESULT_ERROR_UNINITIALIZED), which knows %s", call,
                           what);
        break;
    default: crumb_sensors_miss(out, "the driver fails to tell %s: %s gives 0x%x", what, call, (unsigned)code); break;
    }
}

/* ---- the device ------------------------------------------------------------------------------------------------ */

typedef struct identity {
    bool has_place;
    uint32_t domain, bus, device, function;
    uint8_t uuid[ZE_MAX_DEVICE_UUID_SIZE];
} identity;

static identity identify(const crumb_ze_functions *z, ze_device_handle_t device) {
    ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    ze_pci_ext_properties_t pci = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
    identity out = {.has_place = z->zeDevicePciGetPropertiesExt(device, &pci) == ZE_RESULT_SUCCESS,
                    .domain = pci.address.domain,
                    .bus = pci.address.bus,
                    .device = pci.address.device,
                    .function = pci.address.function};
    if (z->zeDeviceGetProperties(device, &p) == ZE_RESULT_SUCCESS) memcpy(out.uuid, p.uuid.id, sizeof out.uuid);
    return out;
}

/* By its place on the bus where both know it, else by its number of its own. */
static bool is_device(const crumb_ze_sysman_functions *z, zes_device_handle_t device, const identity *wanted) {
    static const uint8_t none[ZE_MAX_DEVICE_UUID_SIZE];
    zes_pci_properties_t pci = {.stype = ZES_STRUCTURE_TYPE_PCI_PROPERTIES};
    zes_device_properties_t p = {.stype = ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES,
                                 .core = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES}};
    if (wanted->has_place && z->zesDevicePciGetProperties(device, &pci) == ZE_RESULT_SUCCESS)
        return pci.address.domain == wanted->domain && pci.address.bus == wanted->bus &&
               pci.address.device == wanted->device && pci.address.function == wanted->function;
    return memcmp(wanted->uuid, none, sizeof none) != 0 && z->zesDeviceGetProperties(device, &p) == ZE_RESULT_SUCCESS &&
           memcmp(p.core.uuid.id, wanted->uuid, sizeof none) == 0;
}

static zes_device_handle_t find_in(const crumb_ze_sysman_functions *z, zes_driver_handle_t driver,
                                   const identity *wanted) {
    zes_device_handle_t devices[MAX_DEVICES] = {0};
    uint32_t n = MAX_DEVICES;
    if (z->device_get(driver, &n, devices) != ZE_RESULT_SUCCESS) return NULL;
    for (uint32_t i = 0; i < n && i < MAX_DEVICES; i++)
        if (devices[i] && is_device(z, devices[i], wanted)) return devices[i];
    return NULL;
}

static zes_device_handle_t find_device(const crumb_ze_sysman_functions *z, const identity *wanted,
                                       crumb_device_sensors *why) {
    zes_driver_handle_t drivers[MAX_DRIVERS] = {0};
    zes_device_handle_t found = NULL;
    uint32_t n = MAX_DRIVERS;
    const ze_result_t code = z->init(0);
    if (code != ZE_RESULT_SUCCESS) {
        miss(why, "energy and clocks", "zesInit", code);
        return NULL;
    }
    if (z->driver_get(&n, drivers) != ZE_RESULT_SUCCESS) n = 0;
    for (uint32_t i = 0; i < n && i < MAX_DRIVERS && !found; i++)
        if (drivers[i]) found = find_in(z, drivers[i], wanted);
    if (!found) crumb_sensors_miss(why, "Level Zero's Sysman does not know this device");
    return found;
}

/* ---- its domains ----------------------------------------------------------------------------------------------- */

/* How much of the card's energy a domain counts; 0: too little. */
static int rank_power(zes_power_domain_t domain, const char **name) {
    switch (domain) {
    case ZES_POWER_DOMAIN_CARD: return *name = "card", 4;
    case ZES_POWER_DOMAIN_PACKAGE: return *name = "package", 3;
    case 5 /* ZES_POWER_DOMAIN_GPU, of version 1.10 */: return *name = "GPU", 2;
    case ZES_POWER_DOMAIN_UNKNOWN: return *name = "device", 1;
    default: return 0;
    }
}

static void find_power(crumb_ze_sysman *s, zes_device_handle_t device, crumb_device_sensors *why) {
    zes_pwr_handle_t domains[MAX_DOMAINS] = {0};
    uint32_t n = MAX_DOMAINS;
    int best = 0;
    const ze_result_t code = s->z.zesDeviceEnumPowerDomains(device, &n, domains);
    for (uint32_t i = 0; code == ZE_RESULT_SUCCESS && i < n && i < MAX_DOMAINS; i++) {
        zes_power_ext_properties_t more = {.stype = ZES_STRUCTURE_TYPE_POWER_EXT_PROPERTIES};
        zes_power_properties_t p = {.stype = ZES_STRUCTURE_TYPE_POWER_PROPERTIES, .pNext = &more, .defaultLimit = -1};
        const char *name = "";
        if (!domains[i] || s->z.zesPowerGetProperties(domains[i], &p) != ZE_RESULT_SUCCESS || p.onSubdevice) continue;
        const int rank = rank_power(more.domain, &name);
        if (rank <= best) continue;
        best = rank;
        s->power = domains[i];
        s->power_limit_mw = p.defaultLimit > 0 ? (uint32_t)p.defaultLimit : 0;
        snprintf(s->domain, sizeof s->domain, "%s", name);
    }
    if (code != ZE_RESULT_SUCCESS)
        miss(why, "the energy counter", "zesDeviceEnumPowerDomains", code);
    else if (!s->power)
        crumb_sensors_miss(why, "the driver has no energy counter of the whole device");
}

static void find_clock(crumb_ze_sysman *s, zes_device_handle_t device, crumb_device_sensors *why) {
    zes_freq_handle_t domains[MAX_DOMAINS] = {0};
    uint32_t n = MAX_DOMAINS;
    const ze_result_t code = s->z.zesDeviceEnumFrequencyDomains(device, &n, domains);
    for (uint32_t i = 0; code == ZE_RESULT_SUCCESS && i < n && i < MAX_DOMAINS && !s->clock; i++) {
        zes_freq_properties_t p = {.stype = ZES_STRUCTURE_TYPE_FREQ_PROPERTIES};
        if (!domains[i] || s->z.zesFrequencyGetProperties(domains[i], &p) != ZE_RESULT_SUCCESS ||
            p.type != ZES_FREQ_DOMAIN_GPU)
            continue;
        s->clock = domains[i];
        s->clock_most_mhz = p.max > 0 ? (uint32_t)p.max : 0;
    }
    if (code != ZE_RESULT_SUCCESS)
        miss(why, "the clock", "zesDeviceEnumFrequencyDomains", code);
    else if (!s->clock)
        crumb_sensors_miss(why, "the driver tells no clock of the device");
}

void crumb_ze_sysman_find(const crumb_ze_functions *z, ze_device_handle_t device, crumb_ze_sysman *out) {
    const identity wanted = identify(z, device);
    crumb_device_sensors why = {0};
    *out = (crumb_ze_sysman){0};
    if (!crumb_ze_load_sysman(&out->z)) {
        crumb_sensors_miss(&why, "the Level Zero loader has no Sysman (zesInit): install a newer one");
    } else {
        zes_device_handle_t found = find_device(&out->z, &wanted, &why);
        if (found) find_power(out, found, &why);
        if (found) find_clock(out, found, &why);
    }
    memcpy(out->missing, why.missing, sizeof out->missing);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static void name_reasons(uint32_t reasons, char *out, size_t size) {
    static const struct {
        uint32_t flags; /* the later ones are of version 1.11 */
        const char *name;
    } names[] = {{1u << 0 | 1u << 1 | 1u << 9, "power"},
                 {1u << 2, "current"},
                 {1u << 3 | 1u << 8, "temperature"},
                 {1u << 4, "power supply"},
                 {1u << 5, "range set by software"},
                 {1u << 6, "range of another block"},
                 {1u << 7, "voltage"}};
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && used < size; i++) {
        if (reasons & names[i].flags)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", names[i].name);
        reasons &= ~names[i].flags;
    }
    if (reasons && used < size) snprintf(out + used, size - used, "%sreason 0x%x", used ? ", " : "", (unsigned)reasons);
}

static void read_power(const crumb_ze_sysman *s, crumb_device_sensors *out) {
    zes_power_energy_counter_t counter = {0};
    const ze_result_t code = s->z.zesPowerGetEnergyCounter(s->power, &counter);
    out->power_limit_mw = s->power_limit_mw;
    if (code != ZE_RESULT_SUCCESS) {
        miss(out, "the energy counter", "zesPowerGetEnergyCounter", code);
        return;
    }
    out->energy_uj = counter.energy;
    snprintf(out->energy_source, sizeof out->energy_source, "Level Zero Sysman, %s", s->domain);
}

static void read_clock(const crumb_ze_sysman *s, crumb_device_sensors *out) {
    zes_freq_state_t state = {.stype = ZES_STRUCTURE_TYPE_FREQ_STATE, .actual = -1};
    const ze_result_t code = s->z.zesFrequencyGetState(s->clock, &state);
    out->clock_most_mhz = s->clock_most_mhz;
    if (code != ZE_RESULT_SUCCESS) {
        miss(out, "the clock", "zesFrequencyGetState", code);
        return;
    }
    if (state.actual > 0) out->clock_mhz = (uint32_t)state.actual;
    out->knows_throttling = true;
    name_reasons(state.throttleReasons, out->throttling, sizeof out->throttling);
}

void crumb_ze_sysman_read(const crumb_ze_sysman *s, crumb_device_sensors *out) {
    memcpy(out->missing, s->missing, sizeof out->missing);
    if (s->power) read_power(s, out);
    if (s->clock) read_clock(s, out);
}
