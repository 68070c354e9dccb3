/* OpenCL as the files of this folder use it: one target version, and the constants that older headers lack. */
#ifndef CRUMB_CL_OPENCL_API_H
#define CRUMB_CL_OPENCL_API_H

#define CL_TARGET_OPENCL_VERSION          300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* clCreateCommandQueue, which every version has */
#define CL_ENABLE_BETA_EXTENSIONS         /* newer headers count cl_khr_command_buffer among these */
#include <CL/cl.h>
#include <CL/cl_ext.h>

/* cl_intel_device_attribute_query, cl_khr_pci_bus_info, cl_intel_required_subgroup_size */
#define CRUMB_CL_IP_VERSION        0x4250
#define CRUMB_CL_NUM_SLICES        0x4252
#define CRUMB_CL_SUB_SLICES        0x4253
#define CRUMB_CL_EUS_PER_SUB_SLICE 0x4254
#define CRUMB_CL_THREADS_PER_EU    0x4255
#define CRUMB_CL_FEATURES          0x4256
#define CRUMB_CL_SUB_GROUP_SIZES   0x4108
#define CRUMB_CL_PCI_BUS_INFO      0x410F

#endif
