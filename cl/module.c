/* A GPU backend as a module: libcrumb-cl.so or libcrumb-ze.so exports this and nothing else. */
#include "cl/device.h"
#include "cl/kv.h"
#include "cl/memory.h"
#include "cl/plan.h"
#include "cl/rendezvous.h"
#include "cl/sensors.h"
#include "cl/suite.h"

static const crumb_backend backend = {
    .name = CRUMB_MODULE_BACKEND,
    .device = {.list = crumb_cl_device_list,
               .open = crumb_cl_device_open,
               .close = crumb_cl_device_close,
               .get_info = crumb_cl_device_get_info,
               .buffer_create = crumb_cl_buffer_create,
               .buffer_commit = crumb_cl_buffer_commit,
               .buffer_read = crumb_cl_weights_read,
               .buffer_destroy = crumb_cl_buffer_destroy,
               .kv_create = crumb_cl_kv_create,
               .kv_destroy = crumb_cl_kv_destroy,
               .kv_read = crumb_cl_kv_read,
               .kv_write = crumb_cl_kv_write,
               .shared_create = crumb_cl_shared_create,
               .shared_destroy = crumb_cl_shared_destroy,
               .sense = crumb_cl_sense},
    .plan = {.record = crumb_cl_plan_record,
             .write = crumb_cl_plan_write,
             .replay = crumb_cl_plan_replay,
             .read = crumb_cl_plan_read,
             .scratch_bytes = crumb_cl_plan_scratch_bytes,
             .measure = crumb_cl_plan_measure,
             .destroy = crumb_cl_plan_destroy},
};

extern const crumb_module crumb_module_entry;
CRUMB_API const crumb_module crumb_module_entry = {.interface = CRUMB_MODULE_INTERFACE,
                                                   .version = CRUMB_MODULE_VERSION,
                                                   .backend = &backend,
                                                   .suite = &crumb_kernel_suite_cl};
