/* The functions of NVML that a worker calls, as the file named by FAKE_NVML says:
 *
 *   init CODE                                  what nvmlInit_v2 returns
 *   hang                                       no call returns
 *   crash                                      the process is aborted
 *   gpu ADDRESS CODE MEMORY MAJOR MINOR CODE   its handle returns the first code, its use the second
 *   use ADDRESS PID AGE_S CORES ENCODER        a sample
 *   energy ADDRESS MILLIJOULES                 its counter, which no GPU has otherwise
 *   mig ADDRESS GI CI MEMORY                   an instance; every other one of the possible instances is missing
 *
 * With -DOLD it is a library from before nvmlDeviceGetProcessUtilization.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

typedef struct { char address[32]; int code, major, minor, use_code; unsigned long long memory, energy; } Gpu;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int pid; unsigned long long at_us; unsigned int cores, memory, encoder, decoder; } Use;
typedef struct { Gpu as_gpu; unsigned int gi, ci; } Instance;
static Gpu gpus[8];
static Instance instances[8];
static int instance_count;
static Use uses[64];
static char used[64][32];
static int gpu_count, use_count, is_open;

static unsigned long long now_us(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return now.tv_sec * 1000000ULL + now.tv_usec;
}

int nvmlInit_v2(void) {
    char line[256], address[32];
    unsigned long long energy;
    int code = 0, age;
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    if (!file) return 999;
    while (fgets(line, sizeof line, file)) {
        Gpu *gpu = &gpus[gpu_count];
        Use *use = &uses[use_count];
        sscanf(line, "init %d", &code);
        if (!strncmp(line, "hang", 4)) while (1) pause();
        if (!strncmp(line, "crash", 5)) abort();
        if (sscanf(line, "gpu %31s %d %llu %d %d %d", gpu->address, &gpu->code, &gpu->memory, &gpu->major, &gpu->minor,
                   &gpu->use_code) == 6) gpu_count++;
        Instance *one = &instances[instance_count];
        if (sscanf(line, "mig %31s %u %u %llu", one->as_gpu.address, &one->gi, &one->ci, &one->as_gpu.memory) == 4)
            instance_count++;
        if (sscanf(line, "use %31s %u %d %u %u", used[use_count], &use->pid, &age, &use->cores, &use->encoder) == 5) {
            use->at_us = now_us() - age * 1000000ULL;
            use_count++;
        }
        if (sscanf(line, "energy %31s %llu", address, &energy) == 2)
            for (int i = 0; i < gpu_count; i++)
                if (!strcmp(address, gpus[i].address)) gpus[i].energy = energy;
    }
    fclose(file);
    is_open = code == 0;
    return code;
}

int nvmlShutdown(void) { return is_open ? 0 : 1; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, Gpu **gpu) {
    for (int i = 0; i < gpu_count; i++)
        if (!strcmp(address, gpus[i].address)) {
            *gpu = &gpus[i];
            return gpus[i].code;
        }
    return 6;
}

int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory) {
    memory->total = gpu->memory;
    memory->free = memory->total / 2;
    memory->used = memory->total - memory->free;
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) {
    *major = gpu->major;
    *minor = gpu->minor;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned int *count) {
    *count = 2 * instance_count;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned int index, Instance **found) {
    *found = &instances[index / 2];
    return index % 2 && !strcmp(instances[index / 2].as_gpu.address, gpu->address) ? 0 : 6;
}

int nvmlDeviceGetGpuInstanceId(Instance *one, unsigned int *number) {
    *number = one->gi;
    return 0;
}

int nvmlDeviceGetComputeInstanceId(Instance *one, unsigned int *number) {
    *number = one->ci;
    return 0;
}

#ifndef OLD
int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, unsigned long long *energy) {
    *energy = gpu->energy;
    return gpu->energy ? 0 : 3;
}

int nvmlDeviceGetProcessUtilization(Gpu *gpu, Use *into, unsigned int *count, unsigned long long since_us) {
    unsigned int found = 0, room = into ? *count : 0;
    if (gpu->use_code) return gpu->use_code;
    for (int i = 0; i < use_count; i++)
        if (!strcmp(used[i], gpu->address) && uses[i].at_us > since_us) {
            if (found < room) into[found] = uses[i];
            found++;
        }
    *count = found;
    return !found ? 6 : found > room ? 7 : 0;
}
#endif
