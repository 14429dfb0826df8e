// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.
import type { EnumType, RecordType, VariantType, WitInterface, WitWorld } from '../generate/model.ts';

export const typesErrorType: VariantType = { kind: 'variant', interface: 'types', name: 'error', js: 'Error', cases: [{ name: 'invalid-argument', type: { kind: 'string' } }, { name: 'not-owned', type: { kind: 'string' } }, { name: 'unsupported', type: { kind: 'string' } }, { name: 'not-found', type: { kind: 'string' } }, { name: 'limit-exceeded', type: { kind: 'string' } }, { name: 'context-overflow', type: { kind: 'string' } }, { name: 'dependency-failed', type: { kind: 'string' } }, { name: 'cancelled', type: { kind: 'string' } }, { name: 'deadline-exceeded', type: { kind: 'string' } }, { name: 'terminated', type: { kind: 'string' } }, { name: 'unavailable', type: { kind: 'string' } }, { name: 'closed', type: { kind: 'string' } }, { name: 'internal', type: { kind: 'string' } }] };
export const runtimeLogLevelType: EnumType = { kind: 'enum', interface: 'runtime', name: 'log-level', js: 'LogLevel', cases: [{ name: 'debug' }, { name: 'info' }, { name: 'warn' }, { name: 'error' }] };
export const runtimeModelInfoType: RecordType = { kind: 'record', interface: 'runtime', name: 'model-info', js: 'ModelInfo', fields: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'context-length', js: 'contextLength', type: { kind: 'u32' } }, { name: 'vocabulary-size', js: 'vocabularySize', type: { kind: 'u32' } }, { name: 'page-size', js: 'pageSize', type: { kind: 'u32' } }, { name: 'traits', js: 'traits', type: { kind: 'list', element: { kind: 'string' } } }] };
export const runtimeModelMetadataType: RecordType = { kind: 'record', interface: 'runtime', name: 'model-metadata', js: 'ModelMetadata', fields: [{ name: 'architecture', js: 'architecture', type: { kind: 'string' } }, { name: 'parameters', js: 'parameters', type: { kind: 'u64' } }, { name: 'layers', js: 'layers', type: { kind: 'u32' } }, { name: 'hidden-size', js: 'hiddenSize', type: { kind: 'u32' } }, { name: 'attention-heads', js: 'attentionHeads', type: { kind: 'u32' } }, { name: 'key-value-heads', js: 'keyValueHeads', type: { kind: 'u32' } }, { name: 'head-size', js: 'headSize', type: { kind: 'u32' } }, { name: 'bits', js: 'bits', type: { kind: 'u32' } }] };
export const sessionMessageType: VariantType = { kind: 'variant', interface: 'session', name: 'message', js: 'Message', cases: [{ name: 'text', type: { kind: 'string' } }, { name: 'bytes', type: { kind: 'list', element: { kind: 'u8' } } }] };
export const allocateExportInfoType: RecordType = { kind: 'record', interface: 'allocate', name: 'export-info', js: 'ExportInfo', fields: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'pages', js: 'pages', type: { kind: 'u32' } }, { name: 'tokens', js: 'tokens', type: { kind: 'u32' } }, { name: 'next-position', js: 'nextPosition', type: { kind: 'u32' } }, { name: 'persistent', js: 'persistent', type: { kind: 'bool' } }] };
export const allocateImportedType: RecordType = { kind: 'record', interface: 'allocate', name: 'imported', js: 'Imported', fields: [{ name: 'pages', js: 'pages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'tokens', js: 'tokens', type: { kind: 'u32' } }, { name: 'next-position', js: 'nextPosition', type: { kind: 'u32' } }] };
export const allocateTierType: EnumType = { kind: 'enum', interface: 'allocate', name: 'tier', js: 'Tier', cases: [{ name: 'device' }, { name: 'memory' }, { name: 'disk' }] };
export const allocateLeaseEndType: EnumType = { kind: 'enum', interface: 'allocate', name: 'lease-end', js: 'LeaseEnd', cases: [{ name: 'expired' }, { name: 'pressure' }] };
export const allocateResidencyType: RecordType = { kind: 'record', interface: 'allocate', name: 'residency', js: 'Residency', fields: [{ name: 'tier', js: 'tier', type: allocateTierType }, { name: 'device-pages', js: 'devicePages', type: { kind: 'u32' } }, { name: 'memory-pages', js: 'memoryPages', type: { kind: 'u32' } }, { name: 'disk-pages', js: 'diskPages', type: { kind: 'u32' } }, { name: 'bytes', js: 'bytes', type: { kind: 'u64' } }, { name: 'lease-ms', js: 'leaseMs', type: { kind: 'u32' } }, { name: 'lease-ended', js: 'leaseEnded', type: { kind: 'option', value: allocateLeaseEndType } }] };
export const forwardMaskType: RecordType = { kind: 'record', interface: 'forward', name: 'mask', js: 'Mask', fields: [{ name: 'runs', js: 'runs', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'row-lengths', js: 'rowLengths', type: { kind: 'list', element: { kind: 'u32' } } }] };
export const outputTextDistributionType: RecordType = { kind: 'record', interface: 'output-text', name: 'distribution', js: 'Distribution', fields: [{ name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'log-probabilities', js: 'logProbabilities', type: { kind: 'list', element: { kind: 'f32' } } }] };
export const fusedSamplerType: RecordType = { kind: 'record', interface: 'fused', name: 'sampler', js: 'Sampler', fields: [{ name: 'temperature', js: 'temperature', type: { kind: 'f32' } }, { name: 'top-k', js: 'topK', type: { kind: 'u32' } }, { name: 'top-p', js: 'topP', type: { kind: 'f32' } }, { name: 'min-p', js: 'minP', type: { kind: 'f32' } }, { name: 'seed', js: 'seed', type: { kind: 'u32' } }] };
export const fusedOutputType: VariantType = { kind: 'variant', interface: 'fused', name: 'output', js: 'Output', cases: [{ name: 'none', type: null }, { name: 'sample', type: fusedSamplerType }, { name: 'distributions', type: { kind: 'u32' } }] };
export const fusedStepRequestType: RecordType = { kind: 'record', interface: 'fused', name: 'step-request', js: 'StepRequest', fields: [{ name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'positions', js: 'positions', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'in-pages', js: 'inPages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'out-pages', js: 'outPages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'mask', js: 'mask', type: { kind: 'option', value: forwardMaskType } }, { name: 'rows', js: 'rows', type: { kind: 'u32' } }, { name: 'output', js: 'output', type: fusedOutputType }] };
export const fusedStepResultType: RecordType = { kind: 'record', interface: 'fused', name: 'step-result', js: 'StepResult', fields: [{ name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'distributions', js: 'distributions', type: { kind: 'list', element: outputTextDistributionType } }] };
export const fusedRunRequestType: RecordType = { kind: 'record', interface: 'fused', name: 'run-request', js: 'RunRequest', fields: [{ name: 'token', js: 'token', type: { kind: 'u32' } }, { name: 'position', js: 'position', type: { kind: 'u32' } }, { name: 'pages', js: 'pages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'max-tokens', js: 'maxTokens', type: { kind: 'u32' } }, { name: 'sampler', js: 'sampler', type: fusedSamplerType }, { name: 'stop-tokens', js: 'stopTokens', type: { kind: 'list', element: { kind: 'u32' } } }] };
export const fusedFinishReasonType: EnumType = { kind: 'enum', interface: 'fused', name: 'finish-reason', js: 'FinishReason', cases: [{ name: 'stop-token' }, { name: 'max-tokens' }, { name: 'stopped' }] };
export const fusedRunChunkType: RecordType = { kind: 'record', interface: 'fused', name: 'run-chunk', js: 'RunChunk', fields: [{ name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'finished', js: 'finished', type: { kind: 'option', value: fusedFinishReasonType } }] };
export const fusedFrameType: RecordType = { kind: 'record', interface: 'fused', name: 'frame', js: 'Frame', fields: [{ name: 'opening', js: 'opening', type: { kind: 'string' } }, { name: 'before', js: 'before', type: { kind: 'string' } }, { name: 'after', js: 'after', type: { kind: 'string' } }] };
export const fusedPipeRequestType: RecordType = { kind: 'record', interface: 'fused', name: 'pipe-request', js: 'PipeRequest', fields: [{ name: 'before', js: 'before', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'held', js: 'held', type: { kind: 'string' } }, { name: 'stops', js: 'stops', type: { kind: 'list', element: { kind: 'string' } } }, { name: 'frame', js: 'frame', type: { kind: 'option', value: fusedFrameType } }] };
export const fusedPipedType: RecordType = { kind: 'record', interface: 'fused', name: 'piped', js: 'Piped', fields: [{ name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'text', js: 'text', type: { kind: 'string' } }, { name: 'held', js: 'held', type: { kind: 'string' } }, { name: 'stop', js: 'stop', type: { kind: 'option', value: { kind: 'string' } } }, { name: 'finished', js: 'finished', type: { kind: 'option', value: fusedFinishReasonType } }] };
export const tokenizeSpecialTokenIdsType: RecordType = { kind: 'record', interface: 'tokenize', name: 'special-token-ids', js: 'SpecialTokenIds', fields: [{ name: 'bos', js: 'bos', type: { kind: 'option', value: { kind: 'u32' } } }, { name: 'eos', js: 'eos', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'pad', js: 'pad', type: { kind: 'option', value: { kind: 'u32' } } }, { name: 'unknown', js: 'unknown', type: { kind: 'option', value: { kind: 'u32' } } }] };
export const tokenizeChatMessageType: RecordType = { kind: 'record', interface: 'tokenize', name: 'chat-message', js: 'ChatMessage', fields: [{ name: 'role', js: 'role', type: { kind: 'string' } }, { name: 'content', js: 'content', type: { kind: 'string' } }] };
export const tokenizeThoughtFormatType: RecordType = { kind: 'record', interface: 'tokenize', name: 'thought-format', js: 'ThoughtFormat', fields: [{ name: 'open', js: 'open', type: { kind: 'string' } }, { name: 'close', js: 'close', type: { kind: 'string' } }, { name: 'begin', js: 'begin', type: { kind: 'string' } }, { name: 'end', js: 'end', type: { kind: 'string' } }, { name: 'field', js: 'field', type: { kind: 'option', value: { kind: 'string' } } }, { name: 'toggles', js: 'toggles', type: { kind: 'list', element: { kind: 'string' } } }, { name: 'efforts', js: 'efforts', type: { kind: 'list', element: { kind: 'string' } } }] };
export const grammarSourceType: VariantType = { kind: 'variant', interface: 'grammar', name: 'source', js: 'Source', cases: [{ name: 'json-schema', type: { kind: 'string' } }, { name: 'regex', type: { kind: 'string' } }, { name: 'ebnf', type: { kind: 'string' } }, { name: 'json', type: null }] };
export const grammarMatchStatusType: RecordType = { kind: 'record', interface: 'grammar', name: 'match-status', js: 'MatchStatus', fields: [{ name: 'may-end', js: 'mayEnd', type: { kind: 'bool' } }, { name: 'must-end', js: 'mustEnd', type: { kind: 'bool' } }] };
export const penaltiesLogitChangesType: RecordType = { kind: 'record', interface: 'penalties', name: 'logit-changes', js: 'LogitChanges', fields: [{ name: 'frequency', js: 'frequency', type: { kind: 'f32' } }, { name: 'presence', js: 'presence', type: { kind: 'f32' } }, { name: 'bias-tokens', js: 'biasTokens', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'bias-values', js: 'biasValues', type: { kind: 'list', element: { kind: 'f32' } } }, { name: 'chosen', js: 'chosen', type: { kind: 'list', element: { kind: 'u32' } } }] };
export const kvFilesAccessType: EnumType = { kind: 'enum', interface: 'kv-files', name: 'access', js: 'Access', cases: [{ name: 'read' }, { name: 'write' }] };
export const kvFilesRightsType: EnumType = { kind: 'enum', interface: 'kv-files', name: 'rights', js: 'Rights', cases: [{ name: 'private' }, { name: 'readable' }, { name: 'writable' }] };
export const kvFilesFileInfoType: RecordType = { kind: 'record', interface: 'kv-files', name: 'file-info', js: 'FileInfo', fields: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'tokens', js: 'tokens', type: { kind: 'u32' } }, { name: 'next-position', js: 'nextPosition', type: { kind: 'u32' } }, { name: 'persistent', js: 'persistent', type: { kind: 'bool' } }, { name: 'rights', js: 'rights', type: kvFilesRightsType }, { name: 'owner', js: 'owner', type: { kind: 'string' } }, { name: 'locked', js: 'locked', type: { kind: 'bool' } }] };
export const inputImageDimensionsType: RecordType = { kind: 'record', interface: 'input-image', name: 'dimensions', js: 'Dimensions', fields: [{ name: 'width', js: 'width', type: { kind: 'u32' } }, { name: 'height', js: 'height', type: { kind: 'u32' } }] };
export const adapterAdapterInfoType: RecordType = { kind: 'record', interface: 'adapter', name: 'adapter-info', js: 'AdapterInfo', fields: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'rank', js: 'rank', type: { kind: 'u32' } }, { name: 'loaded', js: 'loaded', type: { kind: 'bool' } }] };
export const embeddingEncoderKindType: EnumType = { kind: 'enum', interface: 'embedding', name: 'encoder-kind', js: 'EncoderKind', cases: [{ name: 'embedding' }, { name: 'reranker' }] };
export const embeddingEncoderInfoType: RecordType = { kind: 'record', interface: 'embedding', name: 'encoder-info', js: 'EncoderInfo', fields: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'kind', js: 'kind', type: embeddingEncoderKindType }, { name: 'size', js: 'size', type: { kind: 'u32' } }, { name: 'context-length', js: 'contextLength', type: { kind: 'u32' } }] };
export const embeddingVectorsType: RecordType = { kind: 'record', interface: 'embedding', name: 'vectors', js: 'Vectors', fields: [{ name: 'size', js: 'size', type: { kind: 'u32' } }, { name: 'values', js: 'values', type: { kind: 'list', element: { kind: 'f32' } } }, { name: 'tokens', js: 'tokens', type: { kind: 'u32' } }, { name: 'cut', js: 'cut', type: { kind: 'u32' } }] };
export const rerankScoresType: RecordType = { kind: 'record', interface: 'rerank', name: 'scores', js: 'Scores', fields: [{ name: 'values', js: 'values', type: { kind: 'list', element: { kind: 'f32' } } }, { name: 'tokens', js: 'tokens', type: { kind: 'u32' } }, { name: 'cut', js: 'cut', type: { kind: 'u32' } }] };
export const indexMetricType: EnumType = { kind: 'enum', interface: 'index', name: 'metric', js: 'Metric', cases: [{ name: 'cosine' }, { name: 'dot-product' }, { name: 'euclidean' }] };
export const indexValueType: VariantType = { kind: 'variant', interface: 'index', name: 'value', js: 'Value', cases: [{ name: 'text', type: { kind: 'string' } }, { name: 'number', type: { kind: 'f64' } }, { name: 'boolean', type: { kind: 'bool' } }] };
export const indexFieldType: RecordType = { kind: 'record', interface: 'index', name: 'field', js: 'Field', fields: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'value', js: 'value', type: indexValueType }] };
export const indexIndexEntryType: RecordType = { kind: 'record', interface: 'index', name: 'index-entry', js: 'IndexEntry', fields: [{ name: 'id', js: 'id', type: { kind: 'string' } }, { name: 'text', js: 'text', type: { kind: 'option', value: { kind: 'string' } } }, { name: 'fields', js: 'fields', type: { kind: 'list', element: indexFieldType } }] };
export const indexComparisonType: EnumType = { kind: 'enum', interface: 'index', name: 'comparison', js: 'Comparison', cases: [{ name: 'equal' }, { name: 'not-equal' }, { name: 'less' }, { name: 'at-most' }, { name: 'greater' }, { name: 'at-least' }] };
export const indexConditionType: RecordType = { kind: 'record', interface: 'index', name: 'condition', js: 'Condition', fields: [{ name: 'field', js: 'field', type: { kind: 'string' } }, { name: 'comparison', js: 'comparison', type: indexComparisonType }, { name: 'values', js: 'values', type: { kind: 'list', element: indexValueType } }] };
export const indexMatchType: RecordType = { kind: 'record', interface: 'index', name: 'match', js: 'Match', fields: [{ name: 'entry', js: 'entry', type: indexIndexEntryType }, { name: 'score', js: 'score', type: { kind: 'f64' } }] };
export const indexIndexInfoType: RecordType = { kind: 'record', interface: 'index', name: 'index-info', js: 'IndexInfo', fields: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'dimensions', js: 'dimensions', type: { kind: 'u32' } }, { name: 'metric', js: 'metric', type: indexMetricType }, { name: 'entries', js: 'entries', type: { kind: 'u64' } }, { name: 'bytes', js: 'bytes', type: { kind: 'u64' } }] };
export const storeEntryType: RecordType = { kind: 'record', interface: 'store', name: 'entry', js: 'Entry', fields: [{ name: 'value', js: 'value', type: { kind: 'list', element: { kind: 'u8' } } }, { name: 'version', js: 'version', type: { kind: 'u64' } }] };
export const messagingEnvelopeType: RecordType = { kind: 'record', interface: 'messaging', name: 'envelope', js: 'Envelope', fields: [{ name: 'sender', js: 'sender', type: { kind: 'string' } }, { name: 'message', js: 'message', type: sessionMessageType }] };
export const httpHeaderType: RecordType = { kind: 'record', interface: 'http', name: 'header', js: 'Header', fields: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'value', js: 'value', type: { kind: 'string' } }] };
export const httpRequestType: RecordType = { kind: 'record', interface: 'http', name: 'request', js: 'Request', fields: [{ name: 'method', js: 'method', type: { kind: 'string' } }, { name: 'url', js: 'url', type: { kind: 'string' } }, { name: 'headers', js: 'headers', type: { kind: 'list', element: httpHeaderType } }, { name: 'body', js: 'body', type: { kind: 'option', value: { kind: 'list', element: { kind: 'u8' } } } }, { name: 'timeout-ms', js: 'timeoutMs', type: { kind: 'option', value: { kind: 'u32' } } }, { name: 'redirects', js: 'redirects', type: { kind: 'u32' } }] };
export const httpResponseHeadType: RecordType = { kind: 'record', interface: 'http', name: 'response-head', js: 'ResponseHead', fields: [{ name: 'status', js: 'status', type: { kind: 'u16' } }, { name: 'headers', js: 'headers', type: { kind: 'list', element: httpHeaderType } }, { name: 'url', js: 'url', type: { kind: 'string' } }] };
export const childrenFailureType: RecordType = { kind: 'record', interface: 'children', name: 'failure', js: 'Failure', fields: [{ name: 'code', js: 'code', type: { kind: 'string' } }, { name: 'message', js: 'message', type: { kind: 'string' } }] };
export const childrenEndingType: VariantType = { kind: 'variant', interface: 'children', name: 'ending', js: 'Ending', cases: [{ name: 'success', type: { kind: 'string' } }, { name: 'failure', type: childrenFailureType }] };
export const fileExchangeFileInfoType: RecordType = { kind: 'record', interface: 'file-exchange', name: 'file-info', js: 'FileInfo', fields: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'media-type', js: 'mediaType', type: { kind: 'string' } }, { name: 'size', js: 'size', type: { kind: 'u64' } }] };
export const fileExchangeFileType: RecordType = { kind: 'record', interface: 'file-exchange', name: 'file', js: 'File', fields: [{ name: 'media-type', js: 'mediaType', type: { kind: 'string' } }, { name: 'content', js: 'content', type: { kind: 'list', element: { kind: 'u8' } } }] };
export const personQuestionType: RecordType = { kind: 'record', interface: 'person', name: 'question', js: 'Question', fields: [{ name: 'text', js: 'text', type: { kind: 'string' } }, { name: 'schema', js: 'schema', type: { kind: 'string' } }, { name: 'timeout-seconds', js: 'timeoutSeconds', type: { kind: 'u32' } }, { name: 'state', js: 'state', type: { kind: 'string' } }] };
export const personAnswerType: VariantType = { kind: 'variant', interface: 'person', name: 'answer', js: 'Answer', cases: [{ name: 'answered', type: { kind: 'string' } }, { name: 'expired', type: null }] };
export const personResumptionType: RecordType = { kind: 'record', interface: 'person', name: 'resumption', js: 'Resumption', fields: [{ name: 'state', js: 'state', type: { kind: 'string' } }, { name: 'answer', js: 'answer', type: personAnswerType }] };
export const typesInterface: WitInterface = {
  name: 'types', js: 'types', id: 'pie:inferlet/types@0.1.0',
  types: [typesErrorType],
  resources: [],
  functions: [],
};
export const runtimeInterface: WitInterface = {
  name: 'runtime', js: 'runtime', id: 'pie:inferlet/runtime@0.1.0',
  types: [runtimeLogLevelType, runtimeModelInfoType, runtimeModelMetadataType],
  resources: [],
  functions: [
    { name: 'version', js: 'version', kind: 'function', resource: null, coreName: 'version', params: [], result: { kind: 'string' }, async: false },
    { name: 'instance-id', js: 'instanceId', kind: 'function', resource: null, coreName: 'instance-id', params: [], result: { kind: 'string' }, async: false },
    { name: 'tenant', js: 'tenant', kind: 'function', resource: null, coreName: 'tenant', params: [], result: { kind: 'string' }, async: false },
    { name: 'get-arguments', js: 'getArguments', kind: 'function', resource: null, coreName: 'get-arguments', params: [], result: { kind: 'string' }, async: false },
    { name: 'function-name', js: 'functionName', kind: 'function', resource: null, coreName: 'function-name', params: [], result: { kind: 'string' }, async: false },
    { name: 'function-version', js: 'functionVersion', kind: 'function', resource: null, coreName: 'function-version', params: [], result: { kind: 'string' }, async: false },
    { name: 'models', js: 'models', kind: 'function', resource: null, coreName: 'models', params: [], result: { kind: 'list', element: runtimeModelInfoType }, async: false },
    { name: 'model-traits', js: 'modelTraits', kind: 'function', resource: null, coreName: 'model-traits', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }], result: { kind: 'result', ok: { kind: 'list', element: { kind: 'string' } }, err: typesErrorType }, async: false },
    { name: 'metadata', js: 'metadata', kind: 'function', resource: null, coreName: 'metadata', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }], result: { kind: 'result', ok: runtimeModelMetadataType, err: typesErrorType }, async: false },
    { name: 'efficient-tokens', js: 'efficientTokens', kind: 'function', resource: null, coreName: 'efficient-tokens', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }], result: { kind: 'result', ok: { kind: 'option', value: { kind: 'u32' } }, err: typesErrorType }, async: false },
    { name: 'debug-query', js: 'debugQuery', kind: 'function', resource: null, coreName: 'debug-query', params: [{ name: 'query', js: 'query', type: { kind: 'string' } }], result: { kind: 'result', ok: { kind: 'string' }, err: typesErrorType }, async: false },
    { name: 'log', js: 'log', kind: 'function', resource: null, coreName: 'log', params: [{ name: 'level', js: 'level', type: runtimeLogLevelType }, { name: 'message', js: 'message', type: { kind: 'string' } }], result: null, async: false },
    { name: 'record-span', js: 'recordSpan', kind: 'function', resource: null, coreName: 'record-span', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'kind', js: 'kind', type: { kind: 'string' } }, { name: 'began', js: 'began', type: { kind: 'u64' } }, { name: 'ended', js: 'ended', type: { kind: 'u64' } }, { name: 'failed', js: 'failed', type: { kind: 'bool' } }], result: null, async: false },
    { name: 'is-cancelled', js: 'isCancelled', kind: 'function', resource: null, coreName: 'is-cancelled', params: [], result: { kind: 'bool' }, async: false },
    { name: 'time-left', js: 'timeLeft', kind: 'function', resource: null, coreName: 'time-left', params: [], result: { kind: 'u64' }, async: false },
    { name: 'now', js: 'now', kind: 'function', resource: null, coreName: 'now', params: [], result: { kind: 'u64' }, async: false },
    { name: 'random', js: 'random', kind: 'function', resource: null, coreName: 'random', params: [], result: { kind: 'u32' }, async: false },
    { name: 'sleep', js: 'sleep', kind: 'function', resource: null, coreName: 'sleep', params: [{ name: 'milliseconds', js: 'milliseconds', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
  ],
};
export const sessionInterface: WitInterface = {
  name: 'session', js: 'session', id: 'pie:inferlet/session@0.1.0',
  types: [sessionMessageType],
  resources: [],
  functions: [
    { name: 'send', js: 'send', kind: 'function', resource: null, coreName: 'send', params: [{ name: 'message', js: 'message', type: sessionMessageType }], result: { kind: 'result', ok: null, err: typesErrorType }, async: false },
    { name: 'flush', js: 'flush', kind: 'function', resource: null, coreName: 'flush', params: [], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'receive', js: 'receive', kind: 'function', resource: null, coreName: 'receive', params: [], result: { kind: 'future', value: { kind: 'result', ok: sessionMessageType, err: typesErrorType } }, async: false },
  ],
};
export const queueInterface: WitInterface = {
  name: 'queue', js: 'queue', id: 'pie:inferlet/queue@0.1.0',
  types: [],
  resources: [{ interface: 'queue', name: 'queue', js: 'Queue', functions: [
    { name: 'constructor', js: 'constructor', kind: 'constructor', resource: 'queue', coreName: '[constructor]queue', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }], result: { kind: 'own', interface: 'queue', resource: 'queue' }, async: false },
    { name: 'set-priority', js: 'setPriority', kind: 'method', resource: 'queue', coreName: '[method]queue.set-priority', params: [{ name: 'priority', js: 'priority', type: { kind: 's32' } }], result: null, async: false },
    { name: 'set-depth', js: 'setDepth', kind: 'method', resource: 'queue', coreName: '[method]queue.set-depth', params: [{ name: 'depth', js: 'depth', type: { kind: 'u32' } }], result: null, async: false },
    { name: 'stop', js: 'stop', kind: 'method', resource: 'queue', coreName: '[method]queue.stop', params: [], result: null, async: false },
    { name: 'synchronize', js: 'synchronize', kind: 'method', resource: 'queue', coreName: '[method]queue.synchronize', params: [], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
  ] }],
  functions: [],
};
export const allocateInterface: WitInterface = {
  name: 'allocate', js: 'allocate', id: 'pie:inferlet/allocate@0.1.0',
  types: [allocateExportInfoType, allocateImportedType, allocateTierType, allocateLeaseEndType, allocateResidencyType],
  resources: [],
  functions: [
    { name: 'page-size', js: 'pageSize', kind: 'function', resource: null, coreName: 'page-size', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }], result: { kind: 'u32' }, async: false },
    { name: 'allocate-pages', js: 'allocatePages', kind: 'function', resource: null, coreName: 'allocate-pages', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'count', js: 'count', type: { kind: 'u32' } }], result: { kind: 'result', ok: { kind: 'list', element: { kind: 'u32' } }, err: typesErrorType }, async: false },
    { name: 'free-pages', js: 'freePages', kind: 'function', resource: null, coreName: 'free-pages', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'pages', js: 'pages', type: { kind: 'list', element: { kind: 'u32' } } }], result: null, async: false },
    { name: 'allocate-embeds', js: 'allocateEmbeds', kind: 'function', resource: null, coreName: 'allocate-embeds', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'count', js: 'count', type: { kind: 'u32' } }], result: { kind: 'result', ok: { kind: 'list', element: { kind: 'u32' } }, err: typesErrorType }, async: false },
    { name: 'free-embeds', js: 'freeEmbeds', kind: 'function', resource: null, coreName: 'free-embeds', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'embeds', js: 'embeds', type: { kind: 'list', element: { kind: 'u32' } } }], result: null, async: false },
    { name: 'share-pages', js: 'sharePages', kind: 'function', resource: null, coreName: 'share-pages', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'pages', js: 'pages', type: { kind: 'list', element: { kind: 'u32' } } }], result: { kind: 'result', ok: { kind: 'list', element: { kind: 'u32' } }, err: typesErrorType }, async: false },
    { name: 'copy-slots', js: 'copySlots', kind: 'function', resource: null, coreName: 'copy-slots', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'source', js: 'source', type: { kind: 'u32' } }, { name: 'source-offset', js: 'sourceOffset', type: { kind: 'u32' } }, { name: 'destination', js: 'destination', type: { kind: 'u32' } }, { name: 'destination-offset', js: 'destinationOffset', type: { kind: 'u32' } }, { name: 'count', js: 'count', type: { kind: 'u32' } }, { name: 'shift', js: 'shift', type: { kind: 's32' } }], result: null, async: false },
    { name: 'copy-tokens', js: 'copyTokens', kind: 'function', resource: null, coreName: 'copy-tokens', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'sources', js: 'sources', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'indices', js: 'indices', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'destinations', js: 'destinations', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'positions', js: 'positions', type: { kind: 'list', element: { kind: 'u32' } } }], result: null, async: false },
    { name: 'copy-embeds', js: 'copyEmbeds', kind: 'function', resource: null, coreName: 'copy-embeds', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'sources', js: 'sources', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'destinations', js: 'destinations', type: { kind: 'list', element: { kind: 'u32' } } }], result: null, async: false },
    { name: 'export-pages', js: 'exportPages', kind: 'function', resource: null, coreName: 'export-pages', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'pages', js: 'pages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'persistent', js: 'persistent', type: { kind: 'bool' } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'import-pages', js: 'importPages', kind: 'function', resource: null, coreName: 'import-pages', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: allocateImportedType, err: typesErrorType } }, async: false },
    { name: 'make-durable', js: 'makeDurable', kind: 'function', resource: null, coreName: 'make-durable', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'unexport', js: 'unexport', kind: 'function', resource: null, coreName: 'unexport', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'list-exports', js: 'listExports', kind: 'function', resource: null, coreName: 'list-exports', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: allocateExportInfoType }, err: typesErrorType } }, async: false },
    { name: 'export-residency', js: 'exportResidency', kind: 'function', resource: null, coreName: 'export-residency', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: allocateResidencyType, err: typesErrorType } }, async: false },
    { name: 'pin-export', js: 'pinExport', kind: 'function', resource: null, coreName: 'pin-export', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'lease-ms', js: 'leaseMs', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: allocateResidencyType, err: typesErrorType } }, async: false },
    { name: 'unpin-export', js: 'unpinExport', kind: 'function', resource: null, coreName: 'unpin-export', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: allocateResidencyType, err: typesErrorType } }, async: false },
    { name: 'retain-export', js: 'retainExport', kind: 'function', resource: null, coreName: 'retain-export', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'next-use-ms', js: 'nextUseMs', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: allocateResidencyType, err: typesErrorType } }, async: false },
    { name: 'prefetch-export', js: 'prefetchExport', kind: 'function', resource: null, coreName: 'prefetch-export', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: allocateResidencyType, err: typesErrorType } }, async: false },
    { name: 'demote-export', js: 'demoteExport', kind: 'function', resource: null, coreName: 'demote-export', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'tier', js: 'tier', type: allocateTierType }], result: { kind: 'future', value: { kind: 'result', ok: allocateResidencyType, err: typesErrorType } }, async: false },
  ],
};
export const forwardInterface: WitInterface = {
  name: 'forward', js: 'forward', id: 'pie:inferlet/forward@0.1.0',
  types: [forwardMaskType],
  resources: [],
  functions: [
    { name: 'forward', js: 'forward', kind: 'function', resource: null, coreName: 'forward', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'in-pages', js: 'inPages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'in-embeds', js: 'inEmbeds', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'out-pages', js: 'outPages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'out-embeds', js: 'outEmbeds', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'mask', js: 'mask', type: { kind: 'option', value: forwardMaskType } }], result: null, async: false },
    { name: 'mask-page', js: 'maskPage', kind: 'function', resource: null, coreName: 'mask-page', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'page', js: 'page', type: { kind: 'u32' } }, { name: 'slots', js: 'slots', type: { kind: 'u32' } }], result: null, async: false },
  ],
};
export const inputTextInterface: WitInterface = {
  name: 'input-text', js: 'inputText', id: 'pie:inferlet/input-text@0.1.0',
  types: [],
  resources: [],
  functions: [
    { name: 'embed-text', js: 'embedText', kind: 'function', resource: null, coreName: 'embed-text', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'positions', js: 'positions', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'embeds', js: 'embeds', type: { kind: 'list', element: { kind: 'u32' } } }], result: null, async: false },
  ],
};
export const outputTextInterface: WitInterface = {
  name: 'output-text', js: 'outputText', id: 'pie:inferlet/output-text@0.1.0',
  types: [outputTextDistributionType],
  resources: [],
  functions: [
    { name: 'next-distribution', js: 'nextDistribution', kind: 'function', resource: null, coreName: 'next-distribution', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'embed', js: 'embed', type: { kind: 'u32' } }, { name: 'top-k', js: 'topK', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: outputTextDistributionType, err: typesErrorType } }, async: false },
    { name: 'log-probabilities', js: 'logProbabilities', kind: 'function', resource: null, coreName: 'log-probabilities', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'embed', js: 'embed', type: { kind: 'u32' } }, { name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: { kind: 'f32' } }, err: typesErrorType } }, async: false },
    { name: 'entropy', js: 'entropy', kind: 'function', resource: null, coreName: 'entropy', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'embed', js: 'embed', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'f32' }, err: typesErrorType } }, async: false },
    { name: 'read-embed', js: 'readEmbed', kind: 'function', resource: null, coreName: 'read-embed', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'embed', js: 'embed', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: { kind: 'f32' } }, err: typesErrorType } }, async: false },
  ],
};
export const fusedInterface: WitInterface = {
  name: 'fused', js: 'fused', id: 'pie:inferlet/fused@0.1.0',
  types: [fusedSamplerType, fusedOutputType, fusedStepRequestType, fusedStepResultType, fusedRunRequestType, fusedFinishReasonType, fusedRunChunkType, fusedFrameType, fusedPipeRequestType, fusedPipedType],
  resources: [{ interface: 'fused', name: 'run', js: 'Run', functions: [
    { name: 'constructor', js: 'constructor', kind: 'constructor', resource: 'run', coreName: '[constructor]run', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'request', js: 'request', type: fusedRunRequestType }], result: { kind: 'own', interface: 'fused', resource: 'run' }, async: false },
    { name: 'next', js: 'next', kind: 'method', resource: 'run', coreName: '[method]run.next', params: [], result: { kind: 'future', value: { kind: 'result', ok: fusedRunChunkType, err: typesErrorType } }, async: false },
    { name: 'pipe', js: 'pipe', kind: 'method', resource: 'run', coreName: '[method]run.pipe', params: [{ name: 'request', js: 'request', type: fusedPipeRequestType }], result: { kind: 'future', value: { kind: 'result', ok: fusedPipedType, err: typesErrorType } }, async: false },
    { name: 'stop', js: 'stop', kind: 'method', resource: 'run', coreName: '[method]run.stop', params: [], result: null, async: false },
  ] }],
  functions: [
    { name: 'step', js: 'step', kind: 'function', resource: null, coreName: 'step', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'request', js: 'request', type: fusedStepRequestType }], result: { kind: 'future', value: { kind: 'result', ok: fusedStepResultType, err: typesErrorType } }, async: false },
  ],
};
export const tokenizeInterface: WitInterface = {
  name: 'tokenize', js: 'tokenize', id: 'pie:inferlet/tokenize@0.1.0',
  types: [tokenizeSpecialTokenIdsType, tokenizeChatMessageType, tokenizeThoughtFormatType],
  resources: [{ interface: 'tokenize', name: 'detokenizer', js: 'Detokenizer', functions: [
    { name: 'constructor', js: 'constructor', kind: 'constructor', resource: 'detokenizer', coreName: '[constructor]detokenizer', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }], result: { kind: 'own', interface: 'tokenize', resource: 'detokenizer' }, async: false },
    { name: 'push', js: 'push', kind: 'method', resource: 'detokenizer', coreName: '[method]detokenizer.push', params: [{ name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }], result: { kind: 'result', ok: { kind: 'string' }, err: typesErrorType }, async: false },
    { name: 'finish', js: 'finish', kind: 'method', resource: 'detokenizer', coreName: '[method]detokenizer.finish', params: [], result: { kind: 'string' }, async: false },
  ] }],
  functions: [
    { name: 'tokenize', js: 'tokenize', kind: 'function', resource: null, coreName: 'tokenize', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }, { name: 'text', js: 'text', type: { kind: 'string' } }, { name: 'special', js: 'special', type: { kind: 'bool' } }], result: { kind: 'result', ok: { kind: 'list', element: { kind: 'u32' } }, err: typesErrorType }, async: false },
    { name: 'detokenize', js: 'detokenize', kind: 'function', resource: null, coreName: 'detokenize', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }, { name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'special', js: 'special', type: { kind: 'bool' } }], result: { kind: 'result', ok: { kind: 'string' }, err: typesErrorType }, async: false },
    { name: 'special-tokens', js: 'specialTokens', kind: 'function', resource: null, coreName: 'special-tokens', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }], result: { kind: 'result', ok: tokenizeSpecialTokenIdsType, err: typesErrorType }, async: false },
    { name: 'vocabulary', js: 'vocabulary', kind: 'function', resource: null, coreName: 'vocabulary', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }], result: { kind: 'result', ok: { kind: 'list', element: { kind: 'list', element: { kind: 'u8' } } }, err: typesErrorType }, async: false },
    { name: 'chat-template', js: 'chatTemplate', kind: 'function', resource: null, coreName: 'chat-template', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }, { name: 'messages', js: 'messages', type: { kind: 'list', element: tokenizeChatMessageType } }, { name: 'add-generation-prompt', js: 'addGenerationPrompt', type: { kind: 'bool' } }], result: { kind: 'result', ok: { kind: 'string' }, err: typesErrorType }, async: false },
    { name: 'render-chat', js: 'renderChat', kind: 'function', resource: null, coreName: 'render-chat', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }, { name: 'variables', js: 'variables', type: { kind: 'string' } }], result: { kind: 'result', ok: { kind: 'string' }, err: typesErrorType }, async: false },
    { name: 'thoughts', js: 'thoughts', kind: 'function', resource: null, coreName: 'thoughts', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }], result: { kind: 'result', ok: { kind: 'option', value: tokenizeThoughtFormatType }, err: typesErrorType }, async: false },
  ],
};
export const grammarInterface: WitInterface = {
  name: 'grammar', js: 'grammar', id: 'pie:inferlet/grammar@0.1.0',
  types: [grammarSourceType, grammarMatchStatusType],
  resources: [{ interface: 'grammar', name: 'compiled', js: 'Compiled', functions: [
    { name: 'constructor', js: 'constructor', kind: 'constructor', resource: 'compiled', coreName: '[constructor]compiled', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }, { name: 'source', js: 'source', type: grammarSourceType }], result: { kind: 'own', interface: 'grammar', resource: 'compiled' }, async: false },
    { name: 'ready', js: 'ready', kind: 'method', resource: 'compiled', coreName: '[method]compiled.ready', params: [], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
  ] }, { interface: 'grammar', name: 'matcher', js: 'Matcher', functions: [
    { name: 'constructor', js: 'constructor', kind: 'constructor', resource: 'matcher', coreName: '[constructor]matcher', params: [{ name: 'grammar', js: 'grammar', type: { kind: 'borrow', interface: 'grammar', resource: 'compiled' } }], result: { kind: 'own', interface: 'grammar', resource: 'matcher' }, async: false },
    { name: 'accept', js: 'accept', kind: 'method', resource: 'matcher', coreName: '[method]matcher.accept', params: [{ name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'bool' }, err: typesErrorType } }, async: false },
    { name: 'mask', js: 'mask', kind: 'method', resource: 'matcher', coreName: '[method]matcher.mask', params: [], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: { kind: 'u32' } }, err: typesErrorType } }, async: false },
    { name: 'status', js: 'status', kind: 'method', resource: 'matcher', coreName: '[method]matcher.status', params: [], result: { kind: 'future', value: { kind: 'result', ok: grammarMatchStatusType, err: typesErrorType } }, async: false },
    { name: 'jump', js: 'jump', kind: 'method', resource: 'matcher', coreName: '[method]matcher.jump', params: [{ name: 'most', js: 'most', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: { kind: 'u32' } }, err: typesErrorType } }, async: false },
    { name: 'fork', js: 'fork', kind: 'method', resource: 'matcher', coreName: '[method]matcher.fork', params: [], result: { kind: 'own', interface: 'grammar', resource: 'matcher' }, async: false },
    { name: 'rollback', js: 'rollback', kind: 'method', resource: 'matcher', coreName: '[method]matcher.rollback', params: [{ name: 'tokens', js: 'tokens', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
  ] }],
  functions: [
    { name: 'step', js: 'step', kind: 'function', resource: null, coreName: 'step', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'matcher', js: 'matcher', type: { kind: 'borrow', interface: 'grammar', resource: 'matcher' } }, { name: 'request', js: 'request', type: fusedStepRequestType }], result: { kind: 'future', value: { kind: 'result', ok: fusedStepResultType, err: typesErrorType } }, async: false },
    { name: 'verify', js: 'verify', kind: 'function', resource: null, coreName: 'verify', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'matcher', js: 'matcher', type: { kind: 'borrow', interface: 'grammar', resource: 'matcher' } }, { name: 'adapter', js: 'adapter', type: { kind: 'option', value: { kind: 'string' } } }, { name: 'request', js: 'request', type: fusedStepRequestType }], result: { kind: 'future', value: { kind: 'result', ok: fusedStepResultType, err: typesErrorType } }, async: false },
    { name: 'start-run', js: 'startRun', kind: 'function', resource: null, coreName: 'start-run', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'matcher', js: 'matcher', type: { kind: 'borrow', interface: 'grammar', resource: 'matcher' } }, { name: 'request', js: 'request', type: fusedRunRequestType }], result: { kind: 'own', interface: 'fused', resource: 'run' }, async: false },
  ],
};
export const penaltiesInterface: WitInterface = {
  name: 'penalties', js: 'penalties', id: 'pie:inferlet/penalties@0.1.0',
  types: [penaltiesLogitChangesType],
  resources: [],
  functions: [
    { name: 'start-run', js: 'startRun', kind: 'function', resource: null, coreName: 'start-run', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'request', js: 'request', type: fusedRunRequestType }, { name: 'changes', js: 'changes', type: penaltiesLogitChangesType }], result: { kind: 'own', interface: 'fused', resource: 'run' }, async: false },
  ],
};
export const introspectInterface: WitInterface = {
  name: 'introspect', js: 'introspect', id: 'pie:inferlet/introspect@0.1.0',
  types: [],
  resources: [],
  functions: [
    { name: 'forward-scores', js: 'forwardScores', kind: 'function', resource: null, coreName: 'forward-scores', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'in-pages', js: 'inPages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'in-embeds', js: 'inEmbeds', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'out-pages', js: 'outPages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'out-embeds', js: 'outEmbeds', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'mask', js: 'mask', type: { kind: 'option', value: forwardMaskType } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: { kind: 'f32' } }, err: typesErrorType } }, async: false },
  ],
};
export const kvFilesInterface: WitInterface = {
  name: 'kv-files', js: 'kvFiles', id: 'pie:inferlet/kv-files@0.1.0',
  types: [kvFilesAccessType, kvFilesRightsType, kvFilesFileInfoType],
  resources: [{ interface: 'kv-files', name: 'file', js: 'File', functions: [
    { name: 'constructor', js: 'constructor', kind: 'constructor', resource: 'file', coreName: '[constructor]file', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'option', value: { kind: 'string' } } }, { name: 'access', js: 'access', type: kvFilesAccessType }], result: { kind: 'own', interface: 'kv-files', resource: 'file' }, async: false },
    { name: 'ready', js: 'ready', kind: 'method', resource: 'file', coreName: '[method]file.ready', params: [], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'tokens', js: 'tokens', kind: 'method', resource: 'file', coreName: '[method]file.tokens', params: [], result: { kind: 'u32' }, async: false },
    { name: 'next-position', js: 'nextPosition', kind: 'method', resource: 'file', coreName: '[method]file.next-position', params: [], result: { kind: 'u32' }, async: false },
    { name: 'pages', js: 'pages', kind: 'method', resource: 'file', coreName: '[method]file.pages', params: [], result: { kind: 'list', element: { kind: 'u32' } }, async: false },
    { name: 'reserve', js: 'reserve', kind: 'method', resource: 'file', coreName: '[method]file.reserve', params: [{ name: 'tokens', js: 'tokens', type: { kind: 'u32' } }], result: { kind: 'result', ok: { kind: 'list', element: { kind: 'u32' } }, err: typesErrorType }, async: false },
    { name: 'filled', js: 'filled', kind: 'method', resource: 'file', coreName: '[method]file.filled', params: [{ name: 'tokens', js: 'tokens', type: { kind: 'u32' } }, { name: 'next-position', js: 'nextPosition', type: { kind: 'u32' } }], result: null, async: false },
    { name: 'pred', js: 'pred', kind: 'method', resource: 'file', coreName: '[method]file.pred', params: [{ name: 'tokens', js: 'tokens', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'positions', js: 'positions', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'top-k', js: 'topK', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: outputTextDistributionType }, err: typesErrorType } }, async: false },
    { name: 'fork', js: 'fork', kind: 'method', resource: 'file', coreName: '[method]file.fork', params: [], result: { kind: 'own', interface: 'kv-files', resource: 'file' }, async: false },
    { name: 'extract', js: 'extract', kind: 'method', resource: 'file', coreName: '[method]file.extract', params: [{ name: 'indices', js: 'indices', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'renumber', js: 'renumber', type: { kind: 'option', value: { kind: 'u32' } } }], result: { kind: 'own', interface: 'kv-files', resource: 'file' }, async: false },
    { name: 'merge', js: 'merge', kind: 'method', resource: 'file', coreName: '[method]file.merge', params: [{ name: 'other', js: 'other', type: { kind: 'borrow', interface: 'kv-files', resource: 'file' } }, { name: 'keep-positions', js: 'keepPositions', type: { kind: 'bool' } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'save', js: 'save', kind: 'method', resource: 'file', coreName: '[method]file.save', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'persistent', js: 'persistent', type: { kind: 'bool' } }, { name: 'rights', js: 'rights', type: kvFilesRightsType }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'unlock', js: 'unlock', kind: 'method', resource: 'file', coreName: '[method]file.unlock', params: [], result: null, async: false },
  ] }],
  functions: [
    { name: 'make-durable', js: 'makeDurable', kind: 'function', resource: null, coreName: 'make-durable', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'remove', js: 'remove', kind: 'function', resource: null, coreName: 'remove', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'files', js: 'files', kind: 'function', resource: null, coreName: 'files', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'prefix', js: 'prefix', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: kvFilesFileInfoType }, err: typesErrorType } }, async: false },
  ],
};
export const inputImageInterface: WitInterface = {
  name: 'input-image', js: 'inputImage', id: 'pie:inferlet/input-image@0.1.0',
  types: [inputImageDimensionsType],
  resources: [],
  functions: [
    { name: 'image-dimensions', js: 'imageDimensions', kind: 'function', resource: null, coreName: 'image-dimensions', params: [{ name: 'image', js: 'image', type: { kind: 'list', element: { kind: 'u8' } } }], result: { kind: 'result', ok: inputImageDimensionsType, err: typesErrorType }, async: false },
    { name: 'image-embeds', js: 'imageEmbeds', kind: 'function', resource: null, coreName: 'image-embeds', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'size', js: 'size', type: inputImageDimensionsType }], result: { kind: 'result', ok: { kind: 'u32' }, err: typesErrorType }, async: false },
    { name: 'image-token', js: 'imageToken', kind: 'function', resource: null, coreName: 'image-token', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }], result: { kind: 'result', ok: { kind: 'u32' }, err: typesErrorType }, async: false },
    { name: 'embed-image', js: 'embedImage', kind: 'function', resource: null, coreName: 'embed-image', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'image', js: 'image', type: { kind: 'list', element: { kind: 'u8' } } }, { name: 'positions', js: 'positions', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'embeds', js: 'embeds', type: { kind: 'list', element: { kind: 'u32' } } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
  ],
};
export const adapterInterface: WitInterface = {
  name: 'adapter', js: 'adapter', id: 'pie:inferlet/adapter@0.1.0',
  types: [adapterAdapterInfoType],
  resources: [],
  functions: [
    { name: 'list-adapters', js: 'listAdapters', kind: 'function', resource: null, coreName: 'list-adapters', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: adapterAdapterInfoType }, err: typesErrorType } }, async: false },
    { name: 'load-adapter', js: 'loadAdapter', kind: 'function', resource: null, coreName: 'load-adapter', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'forward-with-adapter', js: 'forwardWithAdapter', kind: 'function', resource: null, coreName: 'forward-with-adapter', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'adapter', js: 'adapter', type: { kind: 'string' } }, { name: 'in-pages', js: 'inPages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'in-embeds', js: 'inEmbeds', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'out-pages', js: 'outPages', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'out-embeds', js: 'outEmbeds', type: { kind: 'list', element: { kind: 'u32' } } }, { name: 'mask', js: 'mask', type: { kind: 'option', value: forwardMaskType } }], result: null, async: false },
    { name: 'step', js: 'step', kind: 'function', resource: null, coreName: 'step', params: [{ name: 'queue', js: 'queue', type: { kind: 'borrow', interface: 'queue', resource: 'queue' } }, { name: 'adapter', js: 'adapter', type: { kind: 'string' } }, { name: 'request', js: 'request', type: fusedStepRequestType }], result: { kind: 'future', value: { kind: 'result', ok: fusedStepResultType, err: typesErrorType } }, async: false },
  ],
};
export const embeddingInterface: WitInterface = {
  name: 'embedding', js: 'embedding', id: 'pie:inferlet/embedding@0.1.0',
  types: [embeddingEncoderInfoType, embeddingEncoderKindType, embeddingVectorsType],
  resources: [],
  functions: [
    { name: 'encoders', js: 'encoders', kind: 'function', resource: null, coreName: 'encoders', params: [], result: { kind: 'list', element: embeddingEncoderInfoType }, async: false },
    { name: 'embed', js: 'embed', kind: 'function', resource: null, coreName: 'embed', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }, { name: 'texts', js: 'texts', type: { kind: 'list', element: { kind: 'string' } } }], result: { kind: 'future', value: { kind: 'result', ok: embeddingVectorsType, err: typesErrorType } }, async: false },
  ],
};
export const rerankInterface: WitInterface = {
  name: 'rerank', js: 'rerank', id: 'pie:inferlet/rerank@0.1.0',
  types: [rerankScoresType],
  resources: [],
  functions: [
    { name: 'rerank', js: 'rerank', kind: 'function', resource: null, coreName: 'rerank', params: [{ name: 'model', js: 'model', type: { kind: 'string' } }, { name: 'query', js: 'query', type: { kind: 'string' } }, { name: 'documents', js: 'documents', type: { kind: 'list', element: { kind: 'string' } } }], result: { kind: 'future', value: { kind: 'result', ok: rerankScoresType, err: typesErrorType } }, async: false },
  ],
};
export const indexInterface: WitInterface = {
  name: 'index', js: 'index', id: 'pie:inferlet/index@0.1.0',
  types: [indexMetricType, indexValueType, indexFieldType, indexIndexEntryType, indexComparisonType, indexConditionType, indexMatchType, indexIndexInfoType],
  resources: [],
  functions: [
    { name: 'create', js: 'create', kind: 'function', resource: null, coreName: 'create', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'dimensions', js: 'dimensions', type: { kind: 'u32' } }, { name: 'metric', js: 'metric', type: indexMetricType }], result: { kind: 'future', value: { kind: 'result', ok: indexIndexInfoType, err: typesErrorType } }, async: false },
    { name: 'upsert', js: 'upsert', kind: 'function', resource: null, coreName: 'upsert', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'entries', js: 'entries', type: { kind: 'list', element: indexIndexEntryType } }, { name: 'vectors', js: 'vectors', type: { kind: 'list', element: { kind: 'f32' } } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'delete-entries', js: 'deleteEntries', kind: 'function', resource: null, coreName: 'delete-entries', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'ids', js: 'ids', type: { kind: 'list', element: { kind: 'string' } } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'u32' }, err: typesErrorType } }, async: false },
    { name: 'query', js: 'query', kind: 'function', resource: null, coreName: 'query', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'vector', js: 'vector', type: { kind: 'option', value: { kind: 'list', element: { kind: 'f32' } } } }, { name: 'text', js: 'text', type: { kind: 'option', value: { kind: 'string' } } }, { name: 'filter', js: 'filter', type: { kind: 'list', element: indexConditionType } }, { name: 'limit', js: 'limit', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: indexMatchType }, err: typesErrorType } }, async: false },
    { name: 'stats', js: 'stats', kind: 'function', resource: null, coreName: 'stats', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: indexIndexInfoType, err: typesErrorType } }, async: false },
    { name: 'list-indexes', js: 'listIndexes', kind: 'function', resource: null, coreName: 'list-indexes', params: [], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: indexIndexInfoType }, err: typesErrorType } }, async: false },
    { name: 'drop-index', js: 'dropIndex', kind: 'function', resource: null, coreName: 'drop-index', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'bool' }, err: typesErrorType } }, async: false },
  ],
};
export const storeInterface: WitInterface = {
  name: 'store', js: 'store', id: 'pie:inferlet/store@0.1.0',
  types: [storeEntryType],
  resources: [],
  functions: [
    { name: 'get', js: 'get', kind: 'function', resource: null, coreName: 'get', params: [{ name: 'key', js: 'key', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'option', value: storeEntryType }, err: typesErrorType } }, async: false },
    { name: 'set', js: 'set', kind: 'function', resource: null, coreName: 'set', params: [{ name: 'key', js: 'key', type: { kind: 'string' } }, { name: 'value', js: 'value', type: { kind: 'list', element: { kind: 'u8' } } }, { name: 'time-to-live', js: 'timeToLive', type: { kind: 'option', value: { kind: 'u32' } } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'u64' }, err: typesErrorType } }, async: false },
    { name: 'compare-and-set', js: 'compareAndSet', kind: 'function', resource: null, coreName: 'compare-and-set', params: [{ name: 'key', js: 'key', type: { kind: 'string' } }, { name: 'expected', js: 'expected', type: { kind: 'option', value: { kind: 'u64' } } }, { name: 'value', js: 'value', type: { kind: 'list', element: { kind: 'u8' } } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'option', value: { kind: 'u64' } }, err: typesErrorType } }, async: false },
    { name: 'delete-key', js: 'deleteKey', kind: 'function', resource: null, coreName: 'delete-key', params: [{ name: 'key', js: 'key', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'bool' }, err: typesErrorType } }, async: false },
    { name: 'exists', js: 'exists', kind: 'function', resource: null, coreName: 'exists', params: [{ name: 'key', js: 'key', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'bool' }, err: typesErrorType } }, async: false },
    { name: 'list-keys', js: 'listKeys', kind: 'function', resource: null, coreName: 'list-keys', params: [{ name: 'prefix', js: 'prefix', type: { kind: 'string' } }, { name: 'after', js: 'after', type: { kind: 'option', value: { kind: 'string' } } }, { name: 'limit', js: 'limit', type: { kind: 'u32' } }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: { kind: 'string' } }, err: typesErrorType } }, async: false },
  ],
};
export const messagingInterface: WitInterface = {
  name: 'messaging', js: 'messaging', id: 'pie:inferlet/messaging@0.1.0',
  types: [messagingEnvelopeType],
  resources: [{ interface: 'messaging', name: 'subscription', js: 'Subscription', functions: [
    { name: 'constructor', js: 'constructor', kind: 'constructor', resource: 'subscription', coreName: '[constructor]subscription', params: [{ name: 'topic', js: 'topic', type: { kind: 'string' } }], result: { kind: 'own', interface: 'messaging', resource: 'subscription' }, async: false },
    { name: 'ready', js: 'ready', kind: 'method', resource: 'subscription', coreName: '[method]subscription.ready', params: [], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'next', js: 'next', kind: 'method', resource: 'subscription', coreName: '[method]subscription.next', params: [], result: { kind: 'future', value: { kind: 'result', ok: messagingEnvelopeType, err: typesErrorType } }, async: false },
    { name: 'unsubscribe', js: 'unsubscribe', kind: 'method', resource: 'subscription', coreName: '[method]subscription.unsubscribe', params: [], result: null, async: false },
  ] }],
  functions: [
    { name: 'broadcast', js: 'broadcast', kind: 'function', resource: null, coreName: 'broadcast', params: [{ name: 'topic', js: 'topic', type: { kind: 'string' } }, { name: 'message', js: 'message', type: sessionMessageType }], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'u32' }, err: typesErrorType } }, async: false },
    { name: 'push', js: 'push', kind: 'function', resource: null, coreName: 'push', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'message', js: 'message', type: sessionMessageType }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'pull', js: 'pull', kind: 'function', resource: null, coreName: 'pull', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: messagingEnvelopeType, err: typesErrorType } }, async: false },
  ],
};
export const httpInterface: WitInterface = {
  name: 'http', js: 'http', id: 'pie:inferlet/http@0.1.0',
  types: [httpHeaderType, httpRequestType, httpResponseHeadType],
  resources: [{ interface: 'http', name: 'exchange', js: 'Exchange', functions: [
    { name: 'constructor', js: 'constructor', kind: 'constructor', resource: 'exchange', coreName: '[constructor]exchange', params: [{ name: 'request', js: 'request', type: httpRequestType }], result: { kind: 'own', interface: 'http', resource: 'exchange' }, async: false },
    { name: 'head', js: 'head', kind: 'method', resource: 'exchange', coreName: '[method]exchange.head', params: [], result: { kind: 'future', value: { kind: 'result', ok: httpResponseHeadType, err: typesErrorType } }, async: false },
    { name: 'read', js: 'read', kind: 'method', resource: 'exchange', coreName: '[method]exchange.read', params: [], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'option', value: { kind: 'list', element: { kind: 'u8' } } }, err: typesErrorType } }, async: false },
  ] }],
  functions: [],
};
export const childrenInterface: WitInterface = {
  name: 'children', js: 'children', id: 'pie:inferlet/children@0.1.0',
  types: [childrenFailureType, childrenEndingType],
  resources: [{ interface: 'children', name: 'child', js: 'Child', functions: [
    { name: 'constructor', js: 'constructor', kind: 'constructor', resource: 'child', coreName: '[constructor]child', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'input', js: 'input', type: { kind: 'string' } }], result: { kind: 'own', interface: 'children', resource: 'child' }, async: false },
    { name: 'started', js: 'started', kind: 'method', resource: 'child', coreName: '[method]child.started', params: [], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'string' }, err: typesErrorType } }, async: false },
    { name: 'send', js: 'send', kind: 'method', resource: 'child', coreName: '[method]child.send', params: [{ name: 'message', js: 'message', type: sessionMessageType }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'close', js: 'close', kind: 'method', resource: 'child', coreName: '[method]child.close', params: [], result: null, async: false },
    { name: 'receive', js: 'receive', kind: 'method', resource: 'child', coreName: '[method]child.receive', params: [], result: { kind: 'future', value: { kind: 'result', ok: sessionMessageType, err: typesErrorType } }, async: false },
    { name: 'wait', js: 'wait', kind: 'method', resource: 'child', coreName: '[method]child.wait', params: [], result: { kind: 'future', value: { kind: 'result', ok: childrenEndingType, err: typesErrorType } }, async: false },
    { name: 'cancel', js: 'cancel', kind: 'method', resource: 'child', coreName: '[method]child.cancel', params: [], result: null, async: false },
  ] }],
  functions: [],
};
export const fileExchangeInterface: WitInterface = {
  name: 'file-exchange', js: 'fileExchange', id: 'pie:inferlet/file-exchange@0.1.0',
  types: [fileExchangeFileInfoType, fileExchangeFileType],
  resources: [],
  functions: [
    { name: 'send-file', js: 'sendFile', kind: 'function', resource: null, coreName: 'send-file', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }, { name: 'media-type', js: 'mediaType', type: { kind: 'string' } }, { name: 'content', js: 'content', type: { kind: 'list', element: { kind: 'u8' } } }], result: { kind: 'future', value: { kind: 'result', ok: null, err: typesErrorType } }, async: false },
    { name: 'receive-file', js: 'receiveFile', kind: 'function', resource: null, coreName: 'receive-file', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'future', value: { kind: 'result', ok: fileExchangeFileType, err: typesErrorType } }, async: false },
    { name: 'list-files', js: 'listFiles', kind: 'function', resource: null, coreName: 'list-files', params: [], result: { kind: 'future', value: { kind: 'result', ok: { kind: 'list', element: fileExchangeFileInfoType }, err: typesErrorType } }, async: false },
  ],
};
export const environmentInterface: WitInterface = {
  name: 'environment', js: 'environment', id: 'pie:inferlet/environment@0.1.0',
  types: [],
  resources: [],
  functions: [
    { name: 'get-variable', js: 'getVariable', kind: 'function', resource: null, coreName: 'get-variable', params: [{ name: 'name', js: 'name', type: { kind: 'string' } }], result: { kind: 'option', value: { kind: 'string' } }, async: false },
    { name: 'list-variables', js: 'listVariables', kind: 'function', resource: null, coreName: 'list-variables', params: [], result: { kind: 'list', element: { kind: 'string' } }, async: false },
  ],
};
export const personInterface: WitInterface = {
  name: 'person', js: 'person', id: 'pie:inferlet/person@0.1.0',
  types: [personQuestionType, personAnswerType, personResumptionType],
  resources: [],
  functions: [
    { name: 'ask', js: 'ask', kind: 'function', resource: null, coreName: 'ask', params: [{ name: 'question', js: 'question', type: personQuestionType }], result: { kind: 'result', ok: null, err: typesErrorType }, async: false },
    { name: 'resumed', js: 'resumed', kind: 'function', resource: null, coreName: 'resumed', params: [], result: { kind: 'option', value: personResumptionType }, async: false },
  ],
};
export const world: WitWorld = { package: 'pie:inferlet', version: '0.1.0', name: 'inferlet', imports: [typesInterface, runtimeInterface, sessionInterface, queueInterface, allocateInterface, forwardInterface, inputTextInterface, outputTextInterface, fusedInterface, tokenizeInterface, grammarInterface, penaltiesInterface, introspectInterface, kvFilesInterface, inputImageInterface, adapterInterface, embeddingInterface, rerankInterface, indexInterface, storeInterface, messagingInterface, httpInterface, childrenInterface, fileExchangeInterface, environmentInterface, personInterface], exports: [{ name: 'run', js: 'run', kind: 'function', resource: null, coreName: 'run', params: [{ name: 'input', js: 'input', type: { kind: 'string' } }], result: { kind: 'result', ok: { kind: 'string' }, err: { kind: 'string' } }, async: true }] };
