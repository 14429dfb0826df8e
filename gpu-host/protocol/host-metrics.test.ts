import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startTestHost } from '../testing/host.ts';
import type { Device, EncoderStats } from './host.ts';
import { hostFamilies } from './host-metrics.ts';

test('metrics of a host name the device of each model, and how much memory of a card is used', async () => {
  await using host = await startTestHost();
  const { models, ...stats } = host.host.stats();
  const points = (device: Device, kv?: string) => {
    const modelsOnDevice = models.map((model) => ({ ...model, device, ...(kv !== undefined && { kv }) }));
    const families = hostFamilies({ ...stats, models: modelsOnDevice }, 'gpu-host-2');
    return ['pie.gpu.host.model.info', 'pie.device.memory'].map(
      (name) => families.find((family) => family.name === name)?.points,
    );
  };
  const [{ name: model = '', backend = '', precision = '' } = {}] = models;
  const common = { host: 'gpu-host-2', model, backend, precision };
  assert.deepEqual(points({ name: 'CPU' }), [
    [{ labels: { ...common, device: 'CPU', device_index: '' }, value: 1 }],
    [],
  ]);
  const card = { name: 'A card', index: 3, memory: { takenBytes: 5, totalBytes: 8 } };
  const deviceLabels = { device: 'A card', device_index: '3' };
  assert.deepEqual(points(card, 'fp8'), [
    [{ labels: { ...common, kv: 'fp8', ...deviceLabels }, value: 1 }],
    [
      { labels: { model, ...deviceLabels, state: 'taken' }, value: 5 },
      { labels: { model, ...deviceLabels, state: 'all' }, value: 8 },
    ],
  ]);
});

test('the metrics of a host include its encoders', async () => {
  await using host = await startTestHost();
  const encoder: EncoderStats = {
    name: 'minilm',
    kind: 'embedding',
    device: { name: 'CPU' },
    waitingCalls: 3,
    batches: 4,
    texts: 50,
    tokens: 600,
    failedCalls: 2,
    deviceBusyMs: 7000,
    maxBatchTokens: 128,
    latency: [],
  };
  const families = hostFamilies({ ...host.host.stats(), encoders: [encoder] }, 'gpu-host-1');
  const found = families.flatMap(({ name, points }) =>
    points.flatMap((point) => (point.labels.model === 'minilm' && 'value' in point ? [[name, point.value]] : [])),
  );
  assert.deepEqual(found, [
    ['pie.gpu.host.model.info', 1],
    ['pie.device.busy', 7],
    ['pie.device.text_tokens', 600],
    ['pie.device.texts', 50],
    ['pie.device.text_batches', 4],
    ['pie.device.failed_calls', 2],
    ['pie.gpu.waiting_calls', 3],
  ]);
});
