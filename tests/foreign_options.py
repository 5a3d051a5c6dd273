"""The options of other toolkits' programs, without their leading dashes, by program and our command."""

OPTIONS = {
    ("fairseq-train", "train"): """
a activation-dropout activation-fn adam-betas adam-eps adaptive-input adaptive-softmax-cutoff
adaptive-softmax-dropout adaptive-softmax-factor aim-repo aim-run-hash alignment-heads alignment-layer
all-gather-list-size amp amp-batch-retries amp-init-scale amp-scale-window arch attention-dropout
azureml-logging batch-size batch-size-valid best-checkpoint-metric bf16 bpe broadcast-buffers
bucket-cap-mb checkpoint-activations checkpoint-shard-count checkpoint-suffix clip-norm
combine-valid-subsets continue-once cpu cpu-offload criterion cross-self-attention curriculum
data-buffer-size dataset-impl ddp-backend ddp-comm-hook debug-param-names decoder-attention-heads
decoder-embed-dim decoder-embed-path decoder-ffn-embed-dim decoder-langtok decoder-layerdrop
decoder-layers decoder-layers-to-keep decoder-learned-pos decoder-normalize-before decoder-output-dim
device-id disable-validation distributed-backend distributed-init-method distributed-no-spawn
distributed-num-procs distributed-port distributed-rank distributed-world-size dropout ema-decay ema-fp32
ema-seed-model ema-start-update ema-update-freq empty-cache-freq encoder-attention-heads encoder-embed-dim
encoder-embed-path encoder-ffn-embed-dim encoder-langtok encoder-layerdrop encoder-layers
encoder-layers-to-keep encoder-learned-pos encoder-normalize-before end-learning-rate eval-bleu
eval-bleu-args eval-bleu-detok eval-bleu-detok-args eval-bleu-print-samples eval-bleu-remove-bpe
eval-tokenized-bleu fast-stat-sync find-unused-parameters finetune-from-model fix-batches-to-gpus
fixed-validation-seed force-anneal fp16 fp16-adam-stats fp16-init-scale fp16-no-flatten-grads
fp16-scale-tolerance fp16-scale-window fp32-reduce-scatter full-context-alignment gen-subset
gradient-as-bucket-view grouped-shuffling heartbeat-timeout ignore-prefix-size ignore-unused-valid-subsets
keep-best-checkpoints keep-interval-updates keep-interval-updates-pattern keep-last-epochs label-smoothing
lang-dict lang-pairs lang-tok-style langs layer-wise-attention layerdrop layernorm-embedding
left-pad-source left-pad-target load-alignments load-checkpoint-on-all-dp-ranks localsgd-frequency
log-file log-format log-interval lr lr-patience lr-scheduler lr-shrink lr-threshold max-epoch
max-source-positions max-target-positions max-tokens max-tokens-valid max-update max-valid-steps
maximize-best-checkpoint-metric memory-efficient-bf16 memory-efficient-fp16 merge-src-tgt-embed
min-loss-scale min-params-to-wrap model-parallel-size momentum no-cross-attention no-decoder-final-norm
no-epoch-checkpoints no-last-checkpoints no-progress-bar no-reshard-after-forward no-save
no-save-optimizer-state no-scale-embedding no-token-positional-embeddings not-fsdp-flatten-parameters
nprocs-per-node num-batch-buckets num-shards num-workers offload-activations on-cpu-convert-precision
optimizer optimizer-overrides patience pipeline-balance pipeline-chunks pipeline-devices
pipeline-model-parallel plasma-path power profile quant-noise-pq quant-noise-pq-block-size
quant-noise-scalar quantization-config-path relu-dropout report-accuracy required-batch-size-multiple
required-seq-len-multiple reset-dataloader reset-logging reset-lr-scheduler reset-meters reset-optimizer
restore-file s sampling-method sampling-temperature save-dir save-interval save-interval-updates scoring
seed sentence-avg shard-id share-all-embeddings share-decoder-input-output-embed simul-type
skip-invalid-size-inputs-valid-test skip-remainder-batch slowmo-base-algorithm slowmo-momentum source-lang
stop-min-lr stop-time-hours store-ema suppress-crashes t target-lang task tensorboard-logdir
threshold-loss-scale tie-adaptive-proj tie-adaptive-weights tokenizer total-num-update tpu train-subset
truncate-source update-epoch-batch-itr update-freq update-ordered-indices-seed upsample-primary use-bmuf
use-old-adam use-plasma-view use-sharded-state user-dir valid-subset validate-after-updates
validate-interval validate-interval-updates wandb-project warmup-init-lr warmup-updates weight-decay
write-checkpoints-asynchronously zero-sharding
""",
    ("fairseq-preprocess", "preprocess"): """
align-suffix alignfile bpe cpu criterion dataset-impl destdir dict-only fp16 joined-dictionary
lr-scheduler nwordssrc nwordstgt only-source optimizer padding-factor s seed source-lang srcdict t
target-lang task testpref tgtdict thresholdsrc thresholdtgt tokenizer trainpref user-dir validpref workers
""",
    ("fairseq-generate", "translate"): """
batch-size beam beam-mt bpe bpe-codes buffer-size constraints cpu dataset-impl decoding-format
diverse-beam-groups diverse-beam-strength diversity-rate eos-token fp16 gen-subset input
iter-decode-eos-penalty iter-decode-force-max-iter iter-decode-max-iter iter-decode-with-beam
iter-decode-with-external-reranker lenpen lenpen-mt lm-path lm-weight match-source-len max-len-a
max-len-a-mt max-len-b max-source-positions max-target-positions max-tokens min-len model-overrides
moses-no-dash-splits moses-no-escape moses-source-lang moses-target-lang nbest no-beamable-mm
no-early-stop no-repeat-ngram-size no-seed-provided num-shards num-workers path post-process prefix-size
print-alignment print-step quiet remove-bpe replace-unk results-path retain-dropout retain-dropout-modules
retain-iter-history s sacrebleu sampling sampling-topk sampling-topp score-reference scoring seed
sentencepiece-model shard-id skip-invalid-size-inputs-valid-test source-lang t target-lang task
temperature tokenizer unkpen unnormalized user-dir
""",
    ("marian", "train"): """
after after-batches after-epochs all-caps-every allow-unk b beam-size bert-mask-symbol c
check-gradient-nan check-nan clip-norm config cost-scaling cost-type cpu-threads custom-fallbacks d
data-threads data-weighting data-weighting-type dec-cell dec-cell-base-depth dec-cell-high-depth dec-depth
devices dim-emb dim-rnn dim-vocabs disp-first disp-freq disp-label-counts dropout-rnn dropout-src
dropout-trg dump-config dynamic-gradient-scaling e early-stopping early-stopping-epsilon early-stopping-on
embedding-fix-src embedding-fix-trg embedding-normalization embedding-vectors enc-cell enc-cell-depth
enc-depth enc-type english-title-case-every exponential-smoothing exponential-smoothing-replace-freq
factor-weight factors-combine factors-dim-emb fp16 fp16-fallback-to-fp32 grad-dropping-momentum
grad-dropping-rate gradient-checkpointing gradient-norm-average-window guided-alignment
guided-alignment-cost guided-alignment-weight ignore-model-config input-types interpolate-env-vars
keep-best l label-smoothing layer-norm layer-normalization learn-rate lemma-dependency lemma-dim-emb log
log-level log-time-zone logical-epoch lr-decay lr-decay-freq lr-decay-inv-sqrt lr-decay-repeat-warmup
lr-decay-reset-optimizer lr-decay-start lr-decay-strategy lr-report lr-warmup lr-warmup-at-reload
lr-warmup-cycle lr-warmup-start-rate m max-length max-length-crop max-length-factor maxi-batch
maxi-batch-sort mini-batch mini-batch-fit mini-batch-fit-step mini-batch-round-up mini-batch-track-lr
mini-batch-warmup mini-batch-words mini-batch-words-ref model multi-loss-type multi-node n-best no-nccl
no-reload no-restore-corpus no-shuffle no-spm-decode no-spm-encode normalize normalize-gradient
num-devices o optimize optimizer optimizer-delay optimizer-params output-approx-knn output-omit-bias
overwrite overwrite-checkpoint precision pretrained-model quantize-biases quantize-bits quantize-log-based
quantize-optimization-steps quiet quiet-translation recover-from-fallback-after relative-paths right-left
save-freq seed sentencepiece-alphas sentencepiece-max-lines sentencepiece-options sharding shuffle
shuffle-in-ram sigterm skip sqlite sqlite-drop sync-freq sync-sgd t task tempdir throw-on-divergence
tied-embeddings tied-embeddings-all tied-embeddings-src train-embedder-rank train-sets
transformer-aan-activation transformer-aan-depth transformer-aan-nogate transformer-decoder-autoreg
transformer-decoder-dim-ffn transformer-decoder-ffn-depth transformer-depth-scaling transformer-dim-aan
transformer-dim-ffn transformer-dropout transformer-dropout-attention transformer-dropout-ffn
transformer-ffn-activation transformer-ffn-depth transformer-guided-alignment-layer transformer-heads
transformer-no-projection transformer-pool transformer-postprocess transformer-postprocess-emb
transformer-postprocess-top transformer-preprocess transformer-rnn-projection transformer-tied-layers
transformer-train-position-embeddings tsv tsv-fields type ulr ulr-query-vectors unlikelihood-loss v
valid-freq valid-log valid-max-length valid-metrics valid-mini-batch valid-reset-all valid-reset-stalled
valid-script-args valid-script-path valid-sets valid-translation-output vocabs w word-penalty word-scores
workspace
""",
    ("marian-decoder", "translate"): """
alignment allow-special allow-unk b beam-size best-deep c cpu-threads d data-threads devices dump-config
force-decode fp16 gemm-type i ignore-model-config input int8shift log log-level m max-length
max-length-crop max-length-factor maxi-batch maxi-batch-sort mini-batch mini-batch-words model-mmap models
n n-best no-spm-decode no-spm-encode normalize num-devices o optimize output output-approx-knn
output-sampling port precision quantize-range quiet quiet-translation relative-paths seed shortlist
skip-cost stat-freq tsv tsv-fields v vocabs w weights word-penalty word-scores workspace
""",
    ("onmt_train, eole train", "train"): """
aan-useffn accum-count accum-steps adagrad-accumulator-init adam-beta1 adam-beta2 add-ffnbias add-qkvbias
alignment-heads alignment-layer apex-opt-level attention-dropout average-decay average-every batch-size
batch-size-multiple batch-type both-embeddings bridge bridge-extra-node bucket-size bucket-size-increment
bucket-size-init cnn-kernel-width compute-dtype config context-gate copy-attn copy-loss-by-seqlength
coverage-attn data dec-layers decay-method decay-steps decoder-start-token decoder-type default-specials
dropout dropout-steps dump-fields dump-preds early-stopping early-stopping-criteria embeddings-type
enc-hid-size enc-layers encoder-type exp exp-host feat-merge feat-vec-exponent feat-vec-size ffn-layernorm
freeze-decoder freeze-encoder freeze-word-vecs-dec freeze-word-vecs-enc full-context-alignment
generator-function global-attention global-attention-function gpu-backend gpu-ranks gpu-verbose-level
heads heads-kv hidden-size input-feed keep-checkpoint label-smoothing lambda-align lambda-coverage
layer-norm layers learning-rate learning-rate-decay lm-prior-lambda lm-prior-model log-file log-file-level
lora-alpha lora-dropout lora-embedding lora-layers lora-rank loss-scale master-ip master-port
max-grad-norm max-relative-positions model-dtype model-path model-task model-type n-sample norm-eps
norm-type normalization num-experts num-workers optim overwrite parallel-mode parallel-residual param-init
param-init-glorot param-init-method permute-sent-ratio pos-ffn-activation-fn position-encoding
pre-word-vecs-dec pre-word-vecs-enc prefetch-factor prior-tokenization quant-layers quant-type
relative-positions-buckets report-every reset-optim reversible-tokenization rnn-type rotary-interleave
rotary-theta save-checkpoint-steps save-config save-data save-format save-model savedata scoring-debug
seed self-attn-type share-decoder-embeddings share-embeddings share-position-embeddings share-vocab
single-pass skip-empty-level sliding-window src src-embeddings src-feats-vocab src-onmttok-kwargs
src-seq-length src-subword-alpha src-subword-model src-subword-nbest src-subword-type src-subword-vocab
src-vocab src-vocab-size src-vocab-threshold src-word-vec-size src-words-min-frequency start-decay-steps
switchout-temperature tensorboard tensorboard-log-dir tgt tgt-embeddings tgt-seq-length tgt-subword-model
tgt-vocab tgt-vocab-size tgt-word-vec-size tgt-words-min-frequency tokendrop-temperature
tokenmask-temperature torch-compile train-eval-steps train-from train-metrics train-steps transformer-ff
transforms truncated-decoder update-vocab use-amp use-ckpting valid-batch-size valid-metrics valid-steps
verbose vocab-size-multiple warmup-steps word-vec-size world-size
""",
    ("onmt_build_vocab", "preprocess"): """
config data learn-subwords learn-subwords-size n-sample num-threads overwrite save-data share-vocab
src-seq-length src-vocab src-vocab-size src-words-min-frequency tgt-seq-length tgt-vocab tgt-vocab-size
tgt-words-min-frequency transforms vocab-sample-queue-size vocab-size-multiple
""",
    ("onmt_translate", "translate"): """
align-debug alpha attn-debug avg-raw-probs ban-unk-token batch-size batch-type beam-size beta
block-ngram-repeat compute-dtype config coverage-penalty data-type dump-beam estim fp32 gold-align gpu
gpu-ranks ignore-when-blocking int8 length-penalty log-file log-file-level max-length max-length-ratio
min-length model model-path n-best output parallel-mode phrase-table precision profile quant-layers
quant-type random-sampling-temp random-sampling-topk random-sampling-topp ratio replace-unk report-align
report-time seed self-attn-backend src stepwise-penalty tgt tgt-file-prefix transforms verbose with-score
world-size
""",
    ("sockeye-train", "train"): """
amp apex-amp batch-sentences-multiple-of batch-size batch-type bow-task-weight bucket-scaling bucket-width
cache-last-best-params cache-metric cache-strategy checkpoint-interval config decode-and-evaluate decoder
device-id dist dry-run dtype embed-dropout encoder env fixed-param-names fixed-param-strategy
gradient-clipping-threshold gradient-clipping-type initial-learning-rate keep-initializations
keep-last-params label-smoothing label-smoothing-impl learning-rate-reduce-factor
learning-rate-reduce-num-not-improved learning-rate-scheduler-type learning-rate-warmup length-task lhuc
loglevel max-checkpoints max-num-checkpoint-not-improved max-num-epochs max-samples max-seconds
max-seq-len max-updates min-num-epochs min-samples min-updates momentum neuron-optimized no-bucketing
no-reload-on-learning-rate-reduce num-embed num-layers num-words optimized-metric optimizer
optimizer-betas optimizer-eps output overwrite-output pad-vocab-to-multiple-of params prepared-data quiet
seed shared-vocab source source-factors source-factors-num-embed source-vocab
stop-training-on-decoder-failure target target-factors target-vocab transformer-activation-type
transformer-attention-heads transformer-dropout-act transformer-dropout-attention
transformer-dropout-prepost transformer-feed-forward-num-hidden transformer-feed-forward-use-glu
transformer-model-size transformer-positional-embedding-type transformer-postprocess
transformer-preprocess update-interval use-cpu validation-source validation-target weight-decay
weight-tying-type word-min-count
""",
    ("sockeye-translate", "translate"): """
avoid-list batch-size beam-search-stop beam-size brevity-penalty-constant-length-ratio
brevity-penalty-type brevity-penalty-weight bucket-width checkpoints chunk-size device-id dtype
ensemble-mode env greedy input int8 json-input length-penalty-alpha length-penalty-beta loglevel
max-input-length max-output-length max-output-length-num-stds mc-dropout models nbest-size nvs-thresh
output output-type prefix-target prevent-unk quiet restrict-lexicon restrict-lexicon-topk
restrict-lexicon-type sample seed skip-nvs strip-unknown-words use-cpu
""",
    ("Trainer of Hugging Face", "train"): """
adam-beta1 adam-beta2 adam-epsilon bf16 data-seed dataloader-num-workers deepspeed disable-tqdm do-eval
do-train early-stopping-patience eval-steps eval-strategy evaluation-strategy fp16 fsdp
gradient-accumulation-steps gradient-checkpointing greater-is-better group-by-length
label-smoothing-factor learning-rate load-best-model-at-end local-rank logging-dir logging-steps
lr-scheduler-type max-grad-norm max-source-length max-steps max-target-length metric-for-best-model
model-name-or-path num-beams num-train-epochs optim output-dir overwrite-output-dir
per-device-eval-batch-size per-device-train-batch-size predict-with-generate push-to-hub report-to
resume-from-checkpoint run-name save-steps save-strategy save-total-limit seed source-lang target-lang
tf32 torch-compile train-file validation-file warmup-ratio warmup-steps weight-decay
""",
    ("sacrebleu", "score"): """
b chrf-beta chrf-char-order chrf-eps-smoothing chrf-lowercase chrf-whitespace chrf-word-order citation
confidence confidence-n detail download echo encoding force format i input l language-pair lc list
lowercase m metrics no-color num-refs origlang paired-ar paired-ar-n paired-bs paired-bs-n paired-jobs
quiet s score-only sentence-level short sl smooth-method smooth-value subset t ter-asian-support
ter-case-sensitive ter-no-punct ter-normalized test-set tok tokenize w width
""",
    ("subword-nmt, spm_train", "preprocess"): """
bos-id byte-fallback character-coverage control-symbols dict-input dropout eos-id glossaries
hard-vocab-limit input input-sentence-size max-sentence-length min-frequency model-prefix model-type
normalization-rule-name num-threads num-workers output pad-id shuffle-input-sentence split-digits symbols
total-symbols unk-id unk-surface user-defined-symbols vocab-size vocabulary vocabulary-threshold
""",
}
