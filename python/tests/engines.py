"""SGLang's and vLLM's own low-latency dispatchers, as they lie in their wheels, over `warpverbs.deep_ep` and `warpverbs.mooncake_ep`.

The files are loaded unchanged. Stand-ins replace the modules that they import from their own packages, which need a dozen others. Torch's
queries for a GPU are answered for the CPU.
"""

from __future__ import annotations

import enum
import importlib.machinery
import importlib.util
import json
import logging
import sys
import types
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import groups
import low_latency
import oracle
import torch
import torch.distributed as dist

from warpverbs import deep_ep, mooncake_ep
from warpverbs.deep_ep.utils.envs import CpuForCuda

LAYERS = 3
#: Experts divide by ranks in SGLang, and vLLM knows some sizes of tokens only.
CASE = oracle.Case(hidden=2048, experts=8, top_k=3, max_tokens=8, returns="rows")


def stand_in(name: str, **holds: Any) -> types.ModuleType:
    """A module of this name that holds these, and its packages."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            module = types.ModuleType(path)
            module.__spec__ = importlib.machinery.ModuleSpec(path, None, is_package=True)
            module.__path__ = []
            sys.modules[path] = module
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
    vars(sys.modules[name]).update(holds)
    return sys.modules[name]


def load(folder: str, name: str) -> types.ModuleType:
    """The file of the module `name` in the unpacked wheel."""
    if "." in name:
        stand_in(name.rpartition(".")[0])
    spec = importlib.util.spec_from_file_location(name, Path(folder) / (name.replace(".", "/") + ".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def nothing(*_: Any, **__: Any) -> None:
    return None


def always(value: Any) -> Any:
    return lambda *_, **__: value


class Flag:
    """A variable of SGLang's environment."""

    def __init__(self, value: Any) -> None:
        self.get = always(value)


def on_the_cpu(stack: ExitStack) -> None:
    stack.enter_context(CpuForCuda())
    torch.cuda.get_device_properties = always(types.SimpleNamespace(multi_processor_count=132))
    torch.get_device_module = always(torch.cpu)


def batches_of_layer(layer: int, half: int, ranks: int) -> list[oracle.Batch]:
    """What every rank's half of the tokens is in a layer: choices and weights; the tokens come from the layer before."""
    return oracle.batches(replace(CASE, choices=("random", "holes", "empty")[layer]), ranks, 100 * layer + half)


class Model:
    """Layers of experts, computed from all tokens of all ranks, without any exchange."""

    def __init__(self, form: str, ranks: int) -> None:
        self.form, self.ranks = form, ranks

    def layer(self, rank: int, layer: int, half: int) -> torch.Tensor:
        own = batches_of_layer(layer, half, self.ranks)[rank]
        seen = own.x if self.form == "bf16" else low_latency.dequantized(*low_latency.quantized(own.x, self.form))
        return oracle.combined(CASE, own, self.ranks, seen)


class Mode(enum.Enum):
    LOW_LATENCY = "low_latency"
    NORMAL = "normal"
    AUTO = "auto"

    def enable_normal(self) -> bool:
        return self is Mode.NORMAL

    def enable_low_latency(self) -> bool:
        return self is Mode.LOW_LATENCY

    is_low_latency, is_normal = enable_low_latency, enable_normal

    def resolve(self, _: bool) -> Mode:
        return self


def three_layers(model: Model, dispatcher: Any, rows_of: Any, back: Any, group: Any, hook: bool) -> None:
    """Three layers of two micro-batches, each with a ``dispatcher`` of SGLang of its own. ``rows_of`` takes the rows out of a
    dispatcher's result. ``back`` makes the argument of its combine from rows, choices and weights."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    halves = [
        dispatcher(
            group,
            CASE.top_k,
            num_experts=CASE.experts,
            num_local_experts=CASE.experts // ranks,
            hidden_size=CASE.hidden,
            params_dtype=torch.bfloat16,
            deepep_mode=Mode.LOW_LATENCY,
            return_recv_hook=hook,
        )
        for _ in range(2)
    ]
    for layer in range(LAYERS):
        own = [batches_of_layer(layer, half, ranks)[rank] for half in range(2)]
        for half, one in enumerate(halves):
            chosen = types.SimpleNamespace(topk_weights=own[half].weights, topk_ids=own[half].experts)
            one.dispatch_a(own[half].x, chosen)
        got = [one.dispatch_b() for one in halves]
        for output, one in zip(got, halves, strict=True):
            assert output.format.value == "deepep_ll"
            y = low_latency.worked(model.form, rows_of(output), output.masked_m, ranks, rank, CASE)
            one.combine_a(back(y, output.topk_ids, output.topk_weights))
        for half, one in enumerate(halves):
            result = one.combine_b()
            assert torch.equal(result, model.layer(rank, layer, half)), (rank, layer, half, hook)


def sglang(folder: str, form: str) -> None:
    """Three layers of two micro-batches through `DeepEPDispatcher`, with a hook and with an event."""
    deep_ep.install()

    class Output(enum.Enum):
        BF16, FP8, INT8, NVFP4, MXFP4, MXFP8 = range(6)

    recorder = types.SimpleNamespace(on_deepep_dispatch_low_latency=nothing)
    resources = types.SimpleNamespace(buffers={})
    flags = {
        "SGLANG_ZBAL_LOCAL_MEM_SIZE": Flag(0),
        "SGLANG_IN_DEEPGEMM_PRECOMPILE_STAGE": Flag(False),
        "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": Flag(CASE.max_tokens),
    }
    stand_in("sglang.srt.environ", envs=types.SimpleNamespace(**flags))
    stand_in("sglang.srt.eplb.expert_distribution", get_global_expert_distribution_recorder=always(recorder))
    stand_in("sglang.srt.layers", deep_gemm_wrapper=types.SimpleNamespace(ENABLE_JIT_DEEPGEMM=False, DEEPGEMM_BLACKWELL=False))
    stand_in("sglang.srt.layers.dp_attention", get_is_extend_in_batch=always(False))
    stand_in("sglang.srt.layers.moe.topk", TopKOutput=object)
    stand_in(
        "sglang.srt.layers.moe.utils",
        DeepEPMode=Mode,
        DispatcherOutputDtype=Output,
        get_deepep_config=always(""),
        get_deepep_output_dtype=always(Output.BF16 if form == "bf16" else Output.FP8),
        is_tbo_enabled=always(True),
    )
    stand_in("sglang.srt.runtime_context", get_parallel=always(None), get_resources=always(resources))
    stand_in(
        "sglang.srt.utils",
        get_bool_env_var=always(False),
        get_cuda_version=always((13, 0)),
        is_blackwell=always(False),
        is_flashinfer_available=always(False),
        is_hip=always(False),
        is_npu=always(False),
        load_json_config=json.loads,
    )
    stand_in("sglang.kernels.ops.quantization.fp8_kernel", sglang_per_token_group_quant_fp8=nothing)
    load(folder, "sglang.srt.layers.moe.token_dispatcher.base")
    loaded = load(folder, "sglang.srt.layers.moe.token_dispatcher.deepep")
    assert loaded.use_deepep, loaded._deepep_import_error

    with groups.world() as group, ExitStack() as stack:
        on_the_cpu(stack)
        model = Model(form, dist.get_world_size())

        def rows_of(output: Any) -> Any:
            return output.hidden_states if form == "bf16" else (output.hidden_states, output.hidden_states_scale)

        for hook in (True, False):
            three_layers(model, loaded.DeepEPDispatcher, rows_of, loaded.DeepEPLLCombineInput, group, hook)
        assert isinstance(resources.buffers["deepep_ep_state"].buffer, deep_ep.Buffer)


def mooncake(folder: str) -> None:
    """Three layers of two micro-batches through `MooncakeEPDispatcher`, with a hook and with an event."""
    mooncake_ep.install()
    resources = types.SimpleNamespace(buffers={})
    elastic = types.SimpleNamespace(state=None)
    recorder = types.SimpleNamespace(on_deepep_dispatch_low_latency=nothing)
    stand_in("sglang.srt.elastic_ep.elastic_ep", ElasticEPStateManager=types.SimpleNamespace(instance=lambda: elastic.state))
    stand_in("sglang.srt.eplb.expert_distribution", get_global_expert_distribution_recorder=always(recorder))
    stand_in("sglang.srt.layers.dp_attention", get_is_extend_in_batch=always(False))
    stand_in("sglang.srt.layers.moe.topk", TopKOutput=object)
    stand_in("sglang.srt.layers.moe.utils", DeepEPMode=Mode)
    stand_in("sglang.srt.runtime_context", get_resources=always(resources))
    stand_in("sglang.srt.utils", get_int_env_var=always(CASE.max_tokens))
    load(folder, "sglang.srt.layers.moe.token_dispatcher.base")
    loaded = load(folder, "sglang.srt.layers.moe.token_dispatcher.mooncake")

    with groups.world() as group, ExitStack() as stack:
        on_the_cpu(stack)
        ranks = dist.get_world_size()
        model = Model("fp8", ranks)

        def rows_of(output: Any) -> Any:
            return output.hidden_states, output.hidden_states_scale

        def back(*given: Any) -> Any:
            return given

        for hook in (True, False):
            # Without a state of its own the dispatcher makes a mask for each call.
            elastic.state = types.SimpleNamespace(active_ranks=torch.ones(ranks, dtype=torch.int32)) if hook else None
            three_layers(model, loaded.MooncakeEPDispatcher, rows_of, back, group, hook)
            if hook:
                assert elastic.state.active_ranks.tolist() == [1] * ranks
        assert isinstance(loaded.EPBuffer.get_existing_buffer(), mooncake_ep.Buffer)


def vllm(folder: str, form: str) -> None:
    """Three layers of two micro-batches through `DeepEPLLPrepareAndFinalize`, with a buffer of `DeepEPLLAll2AllManager`."""
    deep_ep.install()
    batch = types.SimpleNamespace(number=0)
    stand_in("vllm")
    envs = stand_in(
        "vllm.envs",
        VLLM_DEEPEPLL_NVFP4_DISPATCH=False,
        VLLM_DEEPEP_BUFFER_SIZE_MB=1,
        VLLM_DEEPEP_LOW_LATENCY_USE_MNNVL=False,
    )
    assert envs is sys.modules["vllm"].envs
    ours = types.SimpleNamespace(enable_fault_tolerance=True)
    stand_in("vllm.config", get_current_vllm_config=always(types.SimpleNamespace(parallel_config=ours)))
    alone = types.SimpleNamespace(rank_in_group=0, world_size=1)
    get = {name: always(alone) for name in ("get_dp_group", "get_ep_group", "get_pcp_group", "get_tp_group")}
    stand_in("vllm.distributed", **get)
    stand_in("vllm.distributed.parallel_state", **get, in_the_same_node_as=always([True]))
    stand_in("vllm.distributed.utils", StatelessProcessGroup=object)
    stand_in("vllm.forward_context", get_forward_context=nothing)

    def logger(name: str) -> Any:
        made: Any = logging.getLogger(name)
        for level in ("debug", "info", "warning"):
            setattr(made, f"{level}_once", nothing)
        return made

    stand_in("vllm.logger", init_logger=logger)
    stand_in("vllm.utils.flashinfer", has_flashinfer_nvlink_one_sided=always(False), has_flashinfer_nvlink_two_sided=always(False))
    stand_in(
        "vllm.utils.import_utils",
        check_moonep_system_support=nothing,
        deep_ep_v2_unavailable_reason=nothing,
        has_deep_ep=lambda: importlib.util.find_spec("deep_ep") is not None,
        has_deep_ep_v2=always(False),
        has_mori=always(False),
    )
    moe = "vllm.model_executor.layers.fused_moe"
    formats = types.SimpleNamespace(BatchedExperts="batched")
    meta = types.SimpleNamespace
    stand_in(
        f"{moe}.modular_kernel",
        FusedMoEPrepareAndFinalizeModular=type("FusedMoEPrepareAndFinalizeModular", (), {}),
        FusedMoEExperts=object,
        FusedMoEActivationFormat=formats,
        ExpertTokensMetadata=meta,
        ReceiverType=object,
        PrepareResultType=object,
        TopKWeightAndReduce=object,
    )
    stand_in(f"{moe}.config", FusedMoEQuantConfig=object)
    delegate = type("TopKWeightAndReduceDelegate", (), {})
    stand_in(f"{moe}.topk_weight_and_reduce", TopKWeightAndReduceDelegate=delegate)
    stand_in(f"{moe}.utils", moe_kernel_quantize_input=lambda x, *_: (x, None), normalize_batched_scales_shape=nothing)
    ubatching = {
        "dbo_current_ubatch_id": lambda: batch.number,
        "dbo_enabled": always(True),
        "dbo_maybe_run_recv_hook": nothing,
    }
    stand_in("vllm.v1.worker.ubatching", **ubatching)
    load(folder, "vllm.distributed.device_communicators.base_device_communicator")
    managers = load(folder, "vllm.distributed.device_communicators.all2all")
    loaded = load(folder, f"{moe}.prepare_finalize.deepep_ll")

    with groups.world() as group, ExitStack() as stack:
        on_the_cpu(stack)
        rank, ranks = dist.get_rank(), dist.get_world_size()
        model = Model(form, ranks)
        manager = managers.DeepEPLLAll2AllManager(group)
        places = -(-CASE.experts // ranks)
        sizes = (CASE.max_tokens, CASE.hidden, ranks, CASE.experts, places)
        names = ("max_num_tokens_per_dp_rank", "token_hidden_size", "num_ep_ranks", "num_global_experts", "num_local_experts")
        buffer = manager.get_handle(dict(zip(names, sizes, strict=True)))
        assert manager.get_handle(dict(zip(names, sizes, strict=True))) is buffer
        layers = [loaded.DeepEPLLPrepareAndFinalize(buffer, CASE.max_tokens, ranks, form != "bf16") for _ in range(LAYERS)]
        block = [128, 128] if form != "bf16" else None
        none = dict.fromkeys(("a1_scale", "a2_scale", "a1_gscale", "quant_dtype"))
        quantising = types.SimpleNamespace(**none, block_shape=block, per_act_token_quant=False)
        for layer, stage in enumerate(layers):
            own = [batches_of_layer(layer, half, ranks)[rank] for half in range(2)]
            ids = [each.experts.to(stage.topk_indices_dtype()) for each in own]
            waiting = []
            for half, each in enumerate(own):
                batch.number = half
                waiting.append(stage.prepare_async(each.x, each.weights, ids[half], CASE.experts, None, False, quantising))
            sums = [torch.empty_like(each.x) for each in own]
            ending = []
            for half, (hook, receiver) in enumerate(waiting):
                batch.number = half
                hook()
                x, scales, told, _, _ = receiver()
                rows = x if form == "bf16" else (x, scales)
                y = low_latency.worked(form, rows, told.expert_num_tokens, ranks, rank, CASE)
                ending.append(stage.finalize_async(sums[half], y, own[half].weights, ids[half], False, delegate()))
            for half, (hook, receiver) in enumerate(ending):
                hook()
                receiver()
                assert torch.equal(sums[half], model.layer(rank, layer, half)), (rank, layer, half)
        assert manager.query_active_mask().tolist() == [0] * ranks
        assert not bool(manager.query_fault())
        torch.accelerator.synchronize = nothing
        manager.clean_buffers()
        assert manager.max_sms_used() == 0
        # Its cache forgets a buffer without other references.
        manager.destroy()
        assert "destroyed" in repr(buffer)
