"""Program families of real names, and the rules behind them."""

from __future__ import annotations

import itertools

from xlarank.data.family import program_family
from xlarank.data.root import SAMPLE

#: Names of TpuGraphs files by family. The first rule: one program at another batch size, precision,
#: topology or in training and inference is one family; where a name leaves doubt, families are joined.
REAL_FAMILIES = {
    "alexnet": "alexnet_train_batch_32 alexnet_train_batch_32_-3006cd0d02fa72c4",
    "albert": "albert_en_xlarge_batch_size_16_test albert_en_base_batch_size_64_train",
    # electra and TensorFlow Hub's experts/bert/*: BERT with other weights, so the same program
    "bert": (
        "bert_pretraining.8x8.fp32.performance bert_en_cased_L-12_H-768_A-12_batch_size_16_test "
        "electra_small_batch_size_64_test experts_pubmed_batch_size_64_train experts_wiki_books_batch_size_16_test "
        "mlperf_bert_batch_24_2x2 small_bert_bert_en_uncased_L-10_H-768_A-12_batch_size_32_test "
        "tf2_bert_pretrain_dynamic_sequence_length tf2_bert_squad_dynamic"
    ),
    "efficientnet": "efficientnet_b7_eval_batch_1",
    "inception": "inception_v2_batch_128_train inception_v3_batch_128_train_426e203f19335d17",
    "magenta": "magenta magenta_dynamic",
    "maskrcnn": "mask_rcnn_batch_4_bf16_img1408 mask_rcnn_resnet50.4x4.bf16 mlperf_maskrcnn_1_shard_batch_4",
    "mnasnet": "mnasnet_a1_batch_128 mnasnet_b1_batch_128",
    "nmt": "mlperf_nmt_1_shard_batch_8 mlperf_nmt_batch_64",
    "openai": "openai_v0_rnn_natural openai_v0_rnn_optimized",
    "resnet": (
        "inference_mlperf_resnet_batch_16 mlperf_resnet mlperf_resnet_batch_128_1_shard resnet50.8x16.fp16 "
        "resnet50_3d.2x2.bf16 resnet_v1_50_official_batch_128_bf16 resnet_v2_101_batch_128"
    ),
    "retinanet": "retinanet.4x4.bf16.performance retinanet.2x2.fp32_-342c949e14733d96",
    "shapemask": "shapemask.4x4.fp32",
    "ssd": "inference_mlperf_ssd_1200_batch_128 mlperf_ssd_2_shard_batch_8_fast_epoch",
    "talking_heads": "talking-heads_large_batch_size_16_train",
    "transformer": "mlperf_transformer transformer.4x4.fp32.performance transformer_tf2_dynamic_shape",
    "unet": "unet3d unet_3d.4x4.bf16",
    "xception": "xception_imagenet",
    **{name: name for name in ("brax_es", "ncf", "trax_lsh_attention")},
}
#: The second rule: family__variant, with _train for the training step of the same program; the third: a hash.
SPELLED = {
    "cnn__nchw_a": "cnn",
    "cnn_train__a": "cnn",
    "resnet_bn__d": "resnet_bn",  # a family that is spelled out is taken at its word
    "transformer_train__a": "transformer",
    "bert_like__x__y": "bert_like",
    **{
        one: one
        for one in ("__a", "_train__a", "_", ".npz", "7", "_8x8", "größe", "tf2_", "cd708819" * 4, "0" * 32)
    },
}


def test_names_and_their_families():
    """A tile kernel belongs to its program: kernels of one must not stand on both sides of a fold."""
    expected = {name: family for family, names in REAL_FAMILIES.items() for name in names.split()}
    for kernel in ("", "_-3006cd0d02fa72c4", "_426e203f19335d17", "_-d35a43855de59c9", "_fa42c949e14733d9"):
        assert {name: program_family(name + kernel) for name in expected} == expected
    assert {name: program_family(name) for name in SPELLED} == SPELLED
    settings = ("_batch_32", "_train", ".4x4.bf16", "_bf16_batch_8", "_v2_eval", "_batch_size_16_train")
    stems = ("lenet", "deepspeech", "wide_and_deep", "my-net")  # unknown programs at any setting
    for stem, setting, suite in itertools.product(stems, settings, ("", "mlperf_", "tf2_")):
        assert program_family(suite + stem + setting) == program_family(stem) == stem.replace("-", "_")


def test_families_of_the_sample_do_not_cross_splits():
    """Promised by the sample's README; leave-family-out scores stand on it."""
    where: dict[tuple[str, str], set[str]] = {}
    for path in SAMPLE.glob("npz/*/**/*.npz"):
        if path.parent.name == "test" and path.stem.endswith("__s"):
            continue  # siblings: another batch size of a program to learn from
        collection = "/".join(path.relative_to(SAMPLE).parts[1:-2])
        where.setdefault((collection, program_family(path.stem)), set()).add(path.parent.name)
    assert len(where) > 20
    assert {key: splits for key, splits in where.items() if len(splits) > 1} == {}
