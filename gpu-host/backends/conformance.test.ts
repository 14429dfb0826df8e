import { createOnnxBackend } from './onnx/index.ts';
import { createReferenceBackend } from './reference/index.ts';
import { conformance } from './testing/conformance/index.ts';
import { POOL } from './testing/conformance/topic.ts';

conformance({ name: 'reference', create: (model) => createReferenceBackend(model, POOL) });
conformance({ name: 'onnx', create: (model) => createOnnxBackend(model, { ...POOL, bits: 32, threads: 1 }) });
