"""What options of fairseq, OpenNMT, Marian, Hugging Face, JoeyNMT and sacrebleu are called here."""

from collections.abc import Collection

HERE = {
    # nmt preprocess
    "--train": "trainpref train_sets train_src train_tgt",
    "--valid": "validpref valid_sets valid_src valid_tgt dev",
    "--test": "testpref",
    "--vocab-size": "nwordssrc nwordstgt dim_vocabs src_vocab_size tgt_vocab_size num_symbols bpe_operations",
    "--joint": "joined_dictionary share_vocab joint_vocab shared_vocab",
    "--tokenizer": "bpe subword src_subword_type model_type pretokenizer",
    "--reuse-tokenizer": "srcdict tgtdict src_vocab tgt_vocab vocabs bpe_codes src_subword_model spm_model",
    "tokenizer.merges": "num_merges merge_operations",
    "tokenizer.min_count": "thresholdsrc thresholdtgt min_frequency src_words_min_frequency vocab_threshold",
    "tokenizer.symbols": "user_defined_symbols special_tokens src_special_tokens",
    "filter.max_words": "src_seq_length tgt_seq_length max_sentence_length max_len",
    "filter.max_ratio": "ratio length_ratio",
    "text.lowercase": "lower lc do_lower_case",
    # nmt train
    "--preset": "arch task config_name",
    "--out": "destdir save_data save_dir save_model model_dir output_dir",
    "--batch-tokens": "batch_size max_tokens mini_batch mini_batch_words per_device_train_batch_size batch",
    "--max-tokens-per-device": "mini_batch_fit workspace normalization",
    "--max-steps": "max_update max_updates train_steps after_batches num_updates updates",
    "--save-every": "save_interval_updates save_checkpoint_steps save_freq save_steps save_interval",
    "--validate-every": "validate_interval_updates validate_interval valid_steps valid_freq eval_steps "
    "validation_freq",
    "--init-from": "restore_file train_from load_model pretrained_model finetune_from_model finetune",
    "--devices": "distributed_world_size world_size num_gpus gpu_ranks gpus n_gpu nproc",
    "--seed": "random_seed",
    "model.encoder_layers": "layers num_layers n_layers enc_layers enc_depth num_encoder_layers",
    "model.decoder_layers": "dec_layers dec_depth num_decoder_layers",
    "model.width": "d_model dim_emb dim_model hidden_size rnn_size word_vec_size embedding_dim "
    "encoder_embed_dim decoder_embed_dim",
    "model.feed_forward": "d_ff ffn ffn_dim encoder_ffn_embed_dim decoder_ffn_embed_dim transformer_ff "
    "ff_size transformer_dim_ffn encoder_ffn_dim decoder_ffn_dim dim_feedforward filter_size",
    "model.heads": "num_heads n_heads nhead transformer_heads encoder_attention_heads "
    "decoder_attention_heads",
    "model.key_width": "d_k head_dim kv_channels",
    "model.value_width": "d_v",
    "model.norm": "layer_norm norm_first normalize_before encoder_normalize_before decoder_normalize_before "
    "transformer_preprocess transformer_postprocess",
    "model.activation": "activation_fn activation_function pos_ffn_activation_fn transformer_ffn_activation",
    "model.positions": "position_encoding learned_pos encoder_learned_pos positional_encoding",
    "model.tie": "share_embeddings share_all_embeddings share_decoder_input_output_embed "
    "share_decoder_embeddings tied_embeddings tied_embeddings_all tie_word_embeddings tied_softmax",
    "model.residual_dropout": "dropout dropout_rate hidden_dropout transformer_dropout",
    "model.attention_dropout": "transformer_dropout_attention",
    "model.activation_dropout": "relu_dropout transformer_dropout_ffn",
    "batch.longest": "max_source_positions max_target_positions max_length src_seq_length",
    "sampling.source_dropout": "bpe_dropout src_subword_alpha",
    "sampling.source_alpha": "sentencepiece_alphas spm_alpha",
    "loss.smoothing": "label_smoothing label_smoothing_factor",
    "optimizer.kind": "optimizer optim",
    "optimizer.beta1": "adam_betas adam_beta1 betas optimizer_params",
    "optimizer.beta2": "adam_beta2",
    "optimizer.epsilon": "adam_eps adam_epsilon eps",
    "optimizer.clip_norm": "max_grad_norm clip_gradient_norm clip_grad_norm gradient_clip",
    "optimizer.ema": "exponential_smoothing ema_decay average_decay",
    "schedule.kind": "lr_scheduler scheduler lr_scheduler_type lr_schedule decay_method scheduling "
    "learning_rate_scheduling lr_decay",
    "schedule.peak": "lr learning_rate learn_rate",
    "schedule.warmup": "warmup_updates warmup_steps lr_warmup learning_rate_warmup warmup_ratio",
    "training.precision": "fp16 bf16 amp mixed_precision model_dtype dtype memory_efficient_fp16",
    "training.max_epochs": "max_epoch after_epochs epochs epoch num_train_epochs",
    "training.log_every": "log_interval report_every disp_freq logging_steps logging_freq",
    "training.tensorboard": "tensorboard_logdir tensorboard_log_dir",
    "validation.patience": "patience early_stopping early_stopping_patience",
    "validation.metric": "valid_metrics best_checkpoint_metric metric_for_best_model eval_metric "
    "early_stopping_criteria",
    "checkpoints.keep_last": "keep_checkpoint keep_last_epochs keep_interval_updates save_total_limit",
    "checkpoints.keep_best": "keep_best keep_best_checkpoints keep_best_ckpts",
    "start.freeze": "freeze_encoder freeze_decoder fix_layers",
    # nmt translate
    "--beam": "beam_size num_beams beams",
    "--length-penalty": "lenpen alpha beam_alpha normalize",
    "--n-best": "nbest num_return_sequences num_hypotheses",
    "--precision": "fp16 bf16 int8 compute_type quantize quantization gemm_type",
    "--device": "cpu gpu cuda use_cuda no_cuda use_cpu",
    "--threads": "cpu_threads num_threads intra_threads",
    "--input": "src i input_file source_file file",
    "--output": "o tgt results_path output_file",
    "search.rows": "batch_size max_tokens mini_batch max_sentences max_batch_size",
    "search.cap_ratio": "max_len_a max_length_factor max_ratio max_length_ratio",
    "search.cap_extra": "max_len_b",
    "search.max_length": "max_length max_new_tokens max_decoding_length max_output_length",
    "search.min_length": "min_len min_decoding_length",
    "search.mbr": "minimum_bayes_risk consensus rerank",
    "search.sample": "sampling do_sample random_sampling",
    "search.temperature": "random_sampling_temp sampling_temperature",
    "search.top_k": "sampling_topk random_sampling_topk",
    "search.top_p": "sampling_topp random_sampling_topp",
    "search.unknown": "allow_unk unkpen ban_unk_token",
    "search.stop_early": "early_stopping ratio",
    "input.longest": "max_source_positions src_seq_length",
    "input.prefix": "prefix prefix_size tgt_prefix target_prefix tgt_file_prefix force_decode",
    "output.alignments": "print_alignment report_align alignment align",
    # nmt score
    "--reference": "ref refs",
    "--target-lang": "language_pair tgt_lang",
    "--metric": "metrics",
    "--sentences": "sentence_level sl",
    "--significance": "paired_bs paired_ar confidence",
    "bleu.tokenizer": "tokenize tok",
    "bleu.lowercase": "lowercase lc",
    "bleu.smoothing": "smooth_method smooth",
}
"""By flag or setting the names that lead to it; of several whose name it is, the command has one."""

TRAINING, TRANSLATING = "training.seed", "search.n_best"
"""Settings that these commands alone have."""

NOWHERE = (
    (
        TRAINING,
        "a step has --batch-tokens on any hardware, and is cut to what fits; there is nothing to set.",
        "update_freq accum_count accum gradient_accumulation_steps optimizer_delay grad_accum batch_type",
    ),
    (
        TRAINING,
        "the loss is always cross-entropy; loss.smoothing is its label smoothing.",
        "criterion loss",
    ),
    (
        TRAINING,
        "batches are made ready in a thread of their own; there is nothing to set.",
        "num_workers workers num_preprocess_workers dataloader_num_workers",
    ),
    (
        TRAINING,
        "a run that has ended early goes on with the same command.",
        "resume resume_from_checkpoint continue reset_optim reset_optimizer",
    ),
    (
        TRAINING,
        "validation sets are given to nmt preprocess.",
        "valid_subset valid_data valid_sets valid_src valid_tgt valid dev",
    ),
    (
        TRAINING,
        "there is none; a lower --max-tokens-per-device takes less memory.",
        "gradient_checkpointing checkpoint_activations",
    ),
    (
        TRANSLATING,
        "text goes in and comes out as people write it; there is nothing to set.",
        "remove_bpe post_process bpe tokenizer moses_source_lang sentencepiece_model detokenize",
    ),
    (
        TRANSLATING,
        "the model knows its languages; there is nothing to set.",
        "source_lang target_lang src_lang tgt_lang",
    ),
    (TRANSLATING, "the model is named without a flag: nmt translate MODEL.", "path model models"),
)
"""What to say where there is nothing of such a name, for the command that has a setting."""


def named_here(name: str, known: Collection[str]) -> str | None:
    """Which of the `known` flags and settings does what others call `name`, a flag or a key."""
    plain = _plain(name)
    return next((here for here, names in HERE.items() if here in known and plain in names.split()), None)


def not_here(name: str, known: Collection[str]) -> str | None:
    """Why there is nothing that does what others call `name`."""
    plain = _plain(name)
    return next((told for has, told, names in NOWHERE if has in known and plain in names.split()), None)


def _plain(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_")
