from judgelm.doctor.machine import Cpu, CudaDevice, Devices, look_at_devices, parse_cpuinfo

# two sockets of one core with two threads each
_SERVER = "".join(
    f"processor\t: {thread}\nmodel name\t: Xeon Max\nphysical id\t: {thread % 2}\ncore id\t\t: 0\n"
    "flags\t\t: fpu sse2 avx2 avx512f avx512_vnni avx512_bf16 amx_bf16\npower management:\n\n"
    for thread in range(4)
)
_ARM = "processor\t: 0\nFeatures\t: fp asimd i8mm bf16\nCPU part\t: 0xd4f\n\nprocessor\t: 1\nCPU part\t: 0xd4f\n"


def test_cpuinfo_of_a_server_gives_the_model_and_the_sets_that_matter():
    assert parse_cpuinfo(_SERVER) == ("Xeon Max", ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16"))


def test_cpuinfo_of_an_arm_machine_names_the_part():
    assert parse_cpuinfo(_ARM) == ("0xd4f", ("asimd", "i8mm", "bf16"))


def _devices(**fields):
    cpu = Cpu(
        model="x",
        physical_cores=1,
        logical_cores=1,
        usable_cores=1,
        instruction_sets=(),
        memory_free_bytes=1,
        memory_total_bytes=2,
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
