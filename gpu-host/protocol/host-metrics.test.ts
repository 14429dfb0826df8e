import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startTestHost } from '../testing/host.ts';
import type { DeviceSummary } from './host.ts';
import { hostFamilies } from './host-metrics.ts';

test('a host says as a metric what computes each model, and of a card how full it is', async () => {
  await using host = await startTestHost();
  const { models, ...stats } = host.host.stats();
  const points = (device: DeviceSummary, kv?: string) => {
    const told = models.map((model) => ({ ...model, device, ...(kv !== undefined && { kv }) }));
    const families = hostFamilies({ ...stats, models: told }, 'gpu-host-2');
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
  const on = { device: 'A card', device_index: '3' };
  assert.deepEqual(points(card, 'fp8'), [
    [{ labels: { ...common, kv: 'fp8', ...on }, value: 1 }],
    [
      { labels: { model, ...on, state: 'taken' }, value: 5 },
      { labels: { model, ...on, state: 'all' }, value: 8 },
    ],
  ]);
});
