from judgelm.doctor.devices import Cpu, CudaDevice, Devices, look_at_devices, parse_cpuinfo, parse_meminfo

# two sockets of one core with two threads each
_SERVER = "".join(
    f"processor\t: {thread}\nmodel name\t: Xeon Max\nphysical id\t: {thread % 2}\ncore id\t\t: 0\n"
    "flags\t\t: fpu sse2 avx2 avx512f avx512_vnni avx512_bf16 amx_bf16\npower management:\n\n"
    for thread in range(4)
)
_ARM = "processor\t: 0\nFeatures\t: fp asimd i8mm bf16\nCPU part\t: 0xd4f\n\nprocessor\t: 1\nCPU part\t: 0xd4f\n"


def test_cpuinfo_of_a_server_gives_cores_once_and_the_sets_that_matter():
    # 4 logical processors: (socket 0, core 0) and (socket 1, core 0), each twice
    assert parse_cpuinfo(_SERVER) == (
        "Xeon Max",
        2,
        ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16"),
    )


def test_cpuinfo_of_an_arm_machine_does_not_say_cores():
    assert parse_cpuinfo(_ARM) == ("0xd4f", 0, ("asimd", "i8mm", "bf16"))


def test_meminfo_is_in_kibibytes():
    assert parse_meminfo("MemTotal: 2048 kB\nMemFree: 10 kB\nMemAvailable: 1024 kB\n") == (1 << 20, 2 << 20)


def _devices(**fields):
    cpu = Cpu(
        model="x",
        physical_cores=1,
        logical_cores=1,
        usable_cores=1,
        instruction_sets=(),
        memory_free_bytes=None,
        memory_total_bytes=None,
    )
    return Devices(**({"cpu": cpu, "cuda": (), "driver": None, "cuda_build": None} | fields))


def test_a_gpu_that_torch_does_not_use_is_a_finding():
    device = CudaDevice(name="H100", compute_capability="9.0", memory_free_bytes=1, memory_total_bytes=1)
    assert _devices().finding is None
    assert _devices(driver="580.1", cuda_build="13.0", cuda=(device,)).finding is None
    assert "torch is a CPU build" in _devices(driver="580.1").finding
    assert "sees no device" in _devices(driver="580.1", cuda_build="13.0").finding


def test_this_machine_has_a_processor_and_memory():
    cpu = look_at_devices(with_torch=False).cpu
    assert cpu.model
    assert 1 <= cpu.usable_cores <= cpu.logical_cores
    assert cpu.physical_cores <= cpu.logical_cores
    assert 0 < cpu.memory_free_bytes <= cpu.memory_total_bytes
