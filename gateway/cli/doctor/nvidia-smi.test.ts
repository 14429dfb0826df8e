import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseSmi, visibleCards } from './card-findings.ts';

const TEXT = `0, GPU-aa11, NVIDIA H200, 143771, 143000, 9.0
1, GPU-bb22, NVIDIA H200, 143771, 20, 9.0
2, GPU-cc33, NVIDIA H200, [N/A], [N/A], 9.0
3, GPU-dd44, NVIDIA H200, 143771, , 9.0
`;

test('parseSmi reads one card per line and omits cards without numbers', () => {
  const [first, ...rest] = parseSmi(TEXT);
  assert.deepEqual(first, {
    index: 0,
    uuid: 'GPU-aa11',
    name: 'NVIDIA H200',
    totalMb: 143_771,
    freeMb: 143_000,
    capability: '9.0',
  });
  assert.deepEqual(
    rest.map(({ index, freeMb }) => [index, freeMb]),
    [[1, 20]],
  );
  assert.deepEqual(parseSmi('No devices were found\n'), []);
});

test('a process sees the cards of CUDA_VISIBLE_DEVICES in that order, up to the first unknown one', () => {
  const cards = parseSmi(TEXT);
  const visibleIndexes = (visible: string | undefined) => visibleCards(cards, visible).map(({ index }) => index);
  assert.deepEqual(visibleIndexes(undefined), [0, 1]);
  assert.deepEqual(visibleIndexes('1,0'), [1, 0]);
  assert.deepEqual(visibleIndexes('GPU-bb'), [1]);
  assert.deepEqual(visibleIndexes('0,7,1'), [0]);
  assert.deepEqual(visibleIndexes(''), []);
  assert.deepEqual(visibleIndexes('-1'), []);
});
