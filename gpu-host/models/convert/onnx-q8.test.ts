import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import onnxProto from 'onnx-proto';
import { expectedTensors, type LoadedModel, loadModel } from '../load.ts';
import { pullModel } from '../pull.ts';
import { argmax, PlainForward } from '../testing/plain-forward.ts';
import { randomModel } from '../testing/random-model.ts';
import { loadTokenizer } from '../tokenizer.ts';
import { convertOnnxQ8 } from './onnx-q8.ts';

const { onnx } = onnxProto;
const FLOAT = 1;
const UINT8 = 2;
const INT8 = 3;

/** A graph with only the parts that the importer reads: initializers (floats, or integers with scales) and named matrix products. */
function exportGraph(model: LoadedModel, leaveOut = ''): { graph: Uint8Array; values: Map<string, Float32Array> } {
  const initializer: object[] = [];
  const node: object[] = [];
  const values = new Map<string, Float32Array>();
  const float = (name: string, dims: number[], data: Float32Array) =>
    initializer.push({ name, dataType: FLOAT, dims, rawData: new Uint8Array(data.buffer) });
  for (const [index, [name, shape]] of expectedTensors(model.config).entries()) {
    if (name === leaveOut) continue;
    const weight = model.tensors.read(name);
    const rows = shape[0]!;
    if (shape.length === 1) {
      float(name, [...shape], weight);
      values.set(name, weight);
      continue;
    }
    const columns = shape[1]!;
    const isEmbedding = name.includes('embed');
    // The graph stores the weight of a product transposed, as [in, out]; the embedding stays [vocabulary, hidden].
    const stored = isEmbedding
      ? weight
      : Float32Array.from(weight, (_, i) => weight[(i % rows) * columns + Math.floor(i / rows)]!);
    const dims = isEmbedding ? [rows, columns] : [columns, rows];
    const initializerName = isEmbedding ? name : `onnx::MatMul_${index}`;
    // `model.layers.0.mlp.up_proj.weight` belongs to the node `/model/layers.0/mlp/up_proj/MatMul_quant`.
    const nodePath = `/${name
      .replace('.weight', '')
      .replace(/\.(?!\d)/g, '/')
      .replace('layers/', 'layers.')}`;
    if (!isEmbedding)
      node.push({
        opType: 'MatMulInteger',
        name: `${nodePath}/MatMul_quant`,
        input: ['x', `${initializerName}_quantized`],
        output: ['y'],
      });
    // Every other tensor has one scale for each column, the rest have a single scale.
    const hasColumnScales = index % 2 === 0;
    const scales = Float32Array.from({ length: hasColumnScales ? dims[1]! : 1 }, (_, i) => 0.01 + 0.001 * i);
    const zeroPoint = isEmbedding ? 128 : 0;
    const quantized = Array.from(
      stored,
      (value, i) => Math.max(-127, Math.min(127, Math.round(value / scales[i % scales.length]!))) + zeroPoint,
    );
    const dequantized = Float32Array.from(quantized, (value, i) => (value - zeroPoint) * scales[i % scales.length]!);
    const type = isEmbedding ? UINT8 : INT8;
    const bytes = isEmbedding ? Uint8Array.from(quantized) : new Uint8Array(Int8Array.from(quantized).buffer);
    initializer.push({ name: `${initializerName}_quantized`, dataType: type, dims, rawData: bytes });
    initializer.push({
      name: `${initializerName}_scale`,
      dataType: FLOAT,
      dims: hasColumnScales ? [scales.length] : [],
      floatData: [...scales],
    });
    initializer.push({ name: `${initializerName}_zero_point`, dataType: type, dims: [], int32Data: [zeroPoint] });
    // Transposes the weight of a product back.
    values.set(
      name,
      isEmbedding
        ? dequantized
        : Float32Array.from(weight, (_, i) => dequantized[(i % columns) * rows + Math.floor(i / columns)]!),
    );
  }
  const graph = onnx.ModelProto.encode(
    onnx.ModelProto.create({ irVersion: 9, graph: { name: 'g', node, initializer } }),
  ).finish();
  return { graph, values };
}

describe('convertOnnxQ8', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-onnx-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  it('finds, dequantises and transposes every weight', async () => {
    for (const config of [{ tiedEmbeddings: true }, { kvHeads: 1 }]) {
      const model = await randomModel(join(directory, 'original'), config, 3);
      const { graph, values } = exportGraph(model);
      await writeFile(join(model.directory, 'model_quantized.onnx'), graph);
      const out = join(directory, 'out');
      await mkdir(out, { recursive: true });
      await convertOnnxQ8(model.directory, 'model_quantized.onnx', out);
      const converted = await loadModel(out);
      for (const [name] of expectedTensors(model.config))
        assert.deepEqual(converted.tensors.read(name), values.get(name), name);
      assert.ok(await loadTokenizer(out));
    }
  });

  it('names the weight that a graph lacks, and refuses a file that is not a graph or has other shapes', async () => {
    const source = join(directory, 'bad');
    const model = await randomModel(source, {}, 3);
    const out = join(directory, 'bad-out');
    await mkdir(out);
    const graphFile = join(source, 'g.onnx');
    await writeFile(graphFile, exportGraph(model, 'model.layers.1.self_attn.o_proj.weight').graph);
    await assert.rejects(convertOnnxQ8(source, 'g.onnx', out), {
      code: 'missing-tensor',
      message: /layers\.1\.self_attn\.o_proj/,
    });
    await writeFile(graphFile, Buffer.from('not a graph at all'));
    await assert.rejects(convertOnnxQ8(source, 'g.onnx', out), { code: 'malformed-weights' });
    const cut = onnx.ModelProto.decode(exportGraph(model).graph);
    const norm = cut.graph!.initializer!.find(({ name }) => name === 'model.norm.weight')!;
    norm.rawData = new Uint8Array(5);
    await writeFile(graphFile, onnx.ModelProto.encode(cut).finish());
    await assert.rejects(convertOnnxQ8(source, 'g.onnx', out), { code: 'malformed-weights', message: /5 bytes/ });
    const other = await randomModel(join(directory, 'other'), { intermediateSize: 48 }, 3);
    await writeFile(graphFile, exportGraph(other).graph);
    await assert.rejects(convertOnnxQ8(source, 'g.onnx', out), { code: 'wrong-shape', message: /gate_proj/ });
  });

  it('minimind2-small answers the capital of France', async () => {
    const { directory: minimind } = await pullModel('minimind2-small');
    const forward = new PlainForward(await loadModel(minimind));
    const tokenizer = await loadTokenizer(minimind);
    const prompt = tokenizer.applyChatTemplate([{ role: 'user', content: 'What is the capital of France?' }], true);
    let logits = new Float64Array(0);
    for (const token of tokenizer.encode(prompt, { special: true })) logits = new Float64Array(forward.next(token));
    const stream = tokenizer.stream();
    let answer = '';
    for (let i = 0; i < 20; i++) {
      const token = argmax(logits);
      if (tokenizer.special.eos.includes(token)) break;
      answer += stream.push([token]);
      logits = new Float64Array(forward.next(token));
    }
    assert.equal(answer + stream.finish(), 'The capital of France is Paris.');
  });
});
