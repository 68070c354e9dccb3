/* What the loader asks a driver for: tables of its functions. What is not set here the driver does not have. */
#include "driver.h"

#define TABLE(name, type, ...)                                                                                         \
    ze_result_t ZE_APICALL zeGet##name##ProcAddrTable(ze_api_version_t version, type *t) {                             \
        if (!t) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                                                           \
        if (ZE_MAJOR_VERSION(version) != 1) return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;                                \
        __VA_ARGS__ return ZE_RESULT_SUCCESS;                                                                          \
    }
#define HAS(group, function)     t->pfn##function = ze##group##function;
#define HAS_ZES(group, function) t->pfn##function = zes##group##function;

TABLE(Global, ze_global_dditable_t, HAS(, Init))
TABLE(Driver, ze_driver_dditable_t,
      HAS(Driver, Get) HAS(Driver, GetApiVersion) HAS(Driver, GetProperties) HAS(Driver, GetExtensionProperties)
          HAS(Driver, GetExtensionFunctionAddress))
TABLE(Device, ze_device_dditable_t,
      HAS(Device, Get) HAS(Device, GetProperties) HAS(Device, GetComputeProperties) HAS(Device, GetModuleProperties)
          HAS(Device, GetMemoryProperties) HAS(Device, GetCacheProperties) HAS(Device, GetCommandQueueGroupProperties)
              HAS(Device, PciGetPropertiesExt))
TABLE(Context, ze_context_dditable_t, HAS(Context, Create) HAS(Context, Destroy))
TABLE(Mem, ze_mem_dditable_t, HAS(Mem, AllocDevice) HAS(Mem, AllocHost) HAS(Mem, Free) HAS(Mem, GetAllocProperties))
TABLE(Module, ze_module_dditable_t, HAS(Module, Create) HAS(Module, Destroy) HAS(Module, GetNativeBinary))
TABLE(ModuleBuildLog, ze_module_build_log_dditable_t, HAS(ModuleBuildLog, GetString) HAS(ModuleBuildLog, Destroy))
TABLE(Kernel, ze_kernel_dditable_t,
      HAS(Kernel, Create) HAS(Kernel, Destroy) HAS(Kernel, SetGroupSize) HAS(Kernel, SetArgumentValue))
TABLE(CommandQueue, ze_command_queue_dditable_t,
      HAS(CommandQueue, Create) HAS(CommandQueue, Destroy) HAS(CommandQueue, ExecuteCommandLists)
          HAS(CommandQueue, Synchronize))
TABLE(CommandList, ze_command_list_dditable_t,
      HAS(CommandList, Create) HAS(CommandList, CreateImmediate) HAS(CommandList, Destroy) HAS(CommandList, Close)
          HAS(CommandList, Reset) HAS(CommandList, AppendLaunchKernel) HAS(CommandList, AppendMemoryCopy)
              HAS(CommandList, AppendMemoryFill) HAS(CommandList, AppendSignalEvent) HAS(CommandList, HostSynchronize))
TABLE(CommandListExp, ze_command_list_exp_dditable_t, HAS(CommandList, ImmediateAppendCommandListsExp))
TABLE(EventPool, ze_event_pool_dditable_t, HAS(EventPool, Create) HAS(EventPool, Destroy))
TABLE(Event, ze_event_dditable_t,
      HAS(Event, Create) HAS(Event, Destroy) HAS(Event, HostReset) HAS(Event, QueryStatus) HAS(Event, HostSynchronize)
          HAS(Event, QueryKernelTimestamp))

/* Sysman's. */
#define SYSMAN_TABLE(name, type, ...)                                                                                  \
    ze_result_t ZE_APICALL zesGet##name##ProcAddrTable(ze_api_version_t version, type *t) {                            \
        if (!t) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                                                           \
        if (ZE_MAJOR_VERSION(version) != 1) return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;                                \
        __VA_ARGS__ return ZE_RESULT_SUCCESS;                                                                          \
    }

SYSMAN_TABLE(Global, zes_global_dditable_t, HAS_ZES(, Init))
SYSMAN_TABLE(Driver, zes_driver_dditable_t, HAS_ZES(Driver, Get))
SYSMAN_TABLE(Device, zes_device_dditable_t,
             HAS_ZES(Device, Get) HAS_ZES(Device, GetProperties) HAS_ZES(Device, EnumPowerDomains)
                 HAS_ZES(Device, EnumFrequencyDomains))
SYSMAN_TABLE(Power, zes_power_dditable_t, HAS_ZES(Power, GetProperties) HAS_ZES(Power, GetEnergyCounter))
SYSMAN_TABLE(Frequency, zes_frequency_dditable_t, HAS_ZES(Frequency, GetProperties) HAS_ZES(Frequency, GetState))
