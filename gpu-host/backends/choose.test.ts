import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseConfig } from '../models/config.ts';
import { TINY_FAMILIES } from '../models/testing/tiny-families.ts';
import { chooseBackend, type Machine } from './choose.ts';

const BARE: Machine = {
  withoutCuda: 'there is no NVIDIA card',
  withoutGgml: undefined,
  ggmlGpu: { without: 'there is no GPU' },
};
const WITH_CARD: Machine = { ...BARE, withoutCuda: undefined };
const WITH_GPU: Machine = { ...BARE, ggmlGpu: { name: 'a Radeon' } };
const WITHOUT_GGML: Machine = { ...BARE, withoutGgml: 'its packages are missing' };
const configOf = (name: string) => parseConfig(TINY_FAMILIES[name]?.config);

test('a backend is chosen by the card, the GPU, the form of the weights and the traits of the model', () => {
  const cases = [
    ['llama', 'own', BARE, 'onnx', /fastest on the CPU/],
    ['llama', 'packed', BARE, 'ggml', /blocks of the file as they are/],
    ['llama', 'own', WITH_CARD, 'cuda', /kernels are built/],
    ['llama', 'packed', WITH_CARD, 'cuda', /kernels are built/],
    ['llama', 'own', WITH_GPU, 'ggml', /found a Radeon/],
    ['llama', 'packed', WITHOUT_GGML, 'onnx', /ggml is missing/],
    ['gemma3', 'own', BARE, 'onnx', /fastest on the CPU/],
    ['gemma3', 'own', WITH_CARD, 'cuda', /kernels are built/],
    ['gpt-oss', 'own', BARE, 'ggml', /onnx does not compute the model: it lacks .*attention sinks.*experts/],
    ['gpt-oss', 'own', WITH_CARD, 'ggml', /onnx does not compute the model/],
  ] as const;
  for (const [family, form, machine, backend, reason] of cases) {
    const choice = chooseBackend(configOf(family), form, machine);
    assert.equal(choice.backend, backend, `${family}, ${form}`);
    assert.match(choice.reason, reason);
  }
});

test('a model that no backend computes is refused with the reason of each', () => {
  assert.throws(() => chooseBackend(configOf('qwen3_moe'), 'own', WITHOUT_GGML), {
    code: 'unsupported-model',
    message: /cuda \(there is no NVIDIA card\), ggml \(its packages are missing\), onnx \(it lacks experts\)/,
  });
});
