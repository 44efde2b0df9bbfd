"""Published models at reduced size: Flax models of Hugging Face transformers, applications of Keras.

Their code is what people run, which the programs written here are not. It needs packages that xlarank does not:
``pip install "transformers<5" flax keras`` beside the extra ``collect``. Named as in `benchmarks.programs`;
variants ``x`` and ``y`` differ in the batch size alone, ``z`` is a step of training.
Nothing is downloaded: weights are shapes. CLIP and wav2vec are missing because the compiler of TPU v3 refuses
their gathers, T5 because its class calls JAX in words that JAX has dropped. Networks with residual connections
around batch norm are left out on purpose: they are held out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.programs.parts import Program, Programs, Shape

os.environ.setdefault("KERAS_BACKEND", "jax")

_LONG = 64
#: Inputs of whole numbers.
_WHOLE = {"input_ids", "decoder_input_ids", "position_ids", "attention_mask"}


def _step(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Mean square of the outputs, its gradient, and one step of gradient descent on the weights."""

    def step(weights: Any, *inputs: Any) -> Any:
        def loss(weights: Any) -> Any:
            return (forward(weights, *inputs).astype(jnp.float32) ** 2).mean()

        value, slopes = jax.value_and_grad(loss)(weights)
        return value, jax.tree.map(lambda w, g: w - jnp.asarray(0.01, w.dtype) * g, weights, slopes)

    return step


def _flax(model: str, config: str, sizes: dict[str, Any], inputs: dict[str, tuple[Any, ...]], form: str) -> Program:
    """One of transformers' Flax classes on inputs of the given shapes (batch first), dtypes int32 or float32."""
    import transformers

    batch = 8 if form == "y" else 4
    made = getattr(transformers, f"Flax{model}")(getattr(transformers, f"{config}Config")(**sizes), _do_init=False)
    weights = jax.eval_shape(lambda key: made.init_weights(key, made.input_shape), Shape((2,), jnp.uint32))
    names = list(inputs)
    shapes = [Shape((batch, *dims), jnp.int32 if name in _WHOLE else jnp.float32) for name, dims in inputs.items()]

    def forward(weights: Any, *given: Any) -> Any:
        return made(**dict(zip(names, given, strict=True)), params=weights, return_dict=False)[0]

    return (_step(forward) if form == "z" else forward), [weights, *shapes]


def _keras(build: str, side: int, **options: Any) -> Program:
    """One of Keras' applications with random weights, on square pictures."""
    import keras

    network = getattr(keras.applications, build)(
        weights=None, input_shape=(side, side, 3), include_top=True, classes=100, **options
    )
    learned = [Shape(v.shape, jnp.float32) for v in network.trainable_variables]
    fixed = [Shape(v.shape, jnp.float32) for v in network.non_trainable_variables]
    picture = Shape((4, side, side, 3), jnp.float32)

    def forward(weights: Any, fixed: Any, x: Any) -> Any:
        return network.stateless_call(weights, fixed, x, training=False)[0]

    return forward, [learned, fixed, picture]


_TEXT = {"input_ids": (_LONG,)}
_PLACED = {**_TEXT, "position_ids": (_LONG,)}
_DECODED = {"decoder_input_ids": (_LONG // 2,)}
_GPT: dict[str, Any] = {"n_layer": 1, "n_head": 4}
_DEEP: dict[str, Any] = {"hidden_size": 192, "num_hidden_layers": 1, "num_attention_heads": 4}
_SMALL: dict[str, Any] = {**_DEEP, "intermediate_size": 384}
_PAIR: dict[str, Any] = {
    "d_model": 192, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 384, "decoder_ffn_dim": 384, "vocab_size": 300,
}  # fmt: skip
#: Class and configuration (with the prefix and suffix of their names left out), sizes, inputs.
_HUGGING: dict[str, tuple[str, str, dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "bert": ("BertForMaskedLM", "Bert", {**_SMALL, "vocab_size": 500}, _TEXT),
    "albert": ("AlbertForMaskedLM", "Albert", {**_SMALL, "embedding_size": 64, "vocab_size": 500}, _TEXT),
    "electra": (
        "ElectraForTokenClassification", "Electra", {**_SMALL, "embedding_size": 96, "vocab_size": 400}, _TEXT
    ),
    "roformer": ("RoFormerForMaskedLM", "RoFormer", {**_SMALL, "vocab_size": 300}, _TEXT),
    "distilbert": (
        "DistilBertForQuestionAnswering", "DistilBert",
        {"dim": 192, "n_layers": 2, "n_heads": 3, "hidden_dim": 320, "vocab_size": 400}, _TEXT,
    ),
    "gpt2": ("GPT2LMHeadModel", "GPT2", {**_GPT, "n_embd": 160, "n_positions": 128, "vocab_size": 600}, _TEXT),
    "gptneo": (
        "GPTNeoForCausalLM", "GPTNeo",
        {"hidden_size": 192, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
         "window_size": 16, "vocab_size": 500, "max_position_embeddings": 128}, _TEXT,
    ),
    "gptj": (
        "GPTJForCausalLM", "GPTJ", {**_GPT, "n_embd": 256, "rotary_dim": 32, "n_positions": 128, "vocab_size": 500},
        _PLACED,
    ),
    "opt": (
        "OPTForCausalLM", "OPT",
        {**_DEEP, "ffn_dim": 512, "word_embed_proj_dim": 96, "vocab_size": 500, "max_position_embeddings": 128},
        {**_TEXT, "attention_mask": (_LONG,), "position_ids": (_LONG,)},
    ),
    "bloom": ("BloomForCausalLM", "Bloom", {**_GPT, "hidden_size": 192, "vocab_size": 500}, _TEXT),
    "gemma": (
        "GemmaForCausalLM", "Gemma",
        {**_SMALL, "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 500}, _PLACED,
    ),
    "bart": (
        "BartForConditionalGeneration", "Bart", {**_PAIR, "max_position_embeddings": 128}, {**_TEXT, **_DECODED}
    ),
    "beit": (
        "BeitForImageClassification", "Beit",
        {**_SMALL, "image_size": 64, "patch_size": 16, "vocab_size": 100}, {"pixel_values": (3, 64, 64)},
    ),
    "dinov2": (
        "Dinov2ForImageClassification", "Dinov2", {**_DEEP, "image_size": 56, "patch_size": 14},
        {"pixel_values": (3, 56, 56)},
    ),
    "whisper": (
        "WhisperForConditionalGeneration", "Whisper",
        {**_PAIR, "num_mel_bins": 80, "max_source_positions": 100, "max_target_positions": 64, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None,
         "begin_suppress_tokens": None}, {"input_features": (80, 200), **_DECODED},
    ),
}  # fmt: skip

PROGRAMS: Programs = {f"{family}__x": partial(_flax, *about, "x") for family, about in _HUGGING.items()}
PROGRAMS |= {f"{family}__y": partial(_flax, *_HUGGING[family], "y") for family in ("bert", "albert", "electra")}
PROGRAMS |= {
    f"{family}_train__z": partial(_flax, *_HUGGING[family], "z") for family in ("bert", "albert", "electra")
}
PROGRAMS |= {"vgg__x": partial(_keras, "VGG16", 32), "mobilenet__x": partial(_keras, "MobileNet", 64, alpha=0.5)}
globals().update(PROGRAMS)
