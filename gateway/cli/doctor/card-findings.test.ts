import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Card, CardsAnswer } from './ask-cards.ts';
import { type CardsSeen, cardFindings, type SmiCard } from './card-findings.ts';

const GIB = 2 ** 30;
const H200: Card = {
  name: 'NVIDIA H200',
  memoryBytes: 140 * GIB,
  capability: '9.0',
  usable: true,
  driverVersion: 13000,
  runtimeVersion: 13000,
};
const A100: Card = { ...H200, name: 'NVIDIA A100', memoryBytes: 80 * GIB, capability: '8.0', usable: false };
const T4: Card = { ...A100, name: 'NVIDIA T4', memoryBytes: 16 * GIB, capability: '7.5' };
const smiOf = (cards: readonly Card[], freeMb = 140_000): SmiCard[] =>
  cards.map(({ name, capability }, index) => ({
    index,
    uuid: `GPU-${index}`,
    name,
    capability,
    totalMb: 143_360,
    freeMb,
  }));
const cardsOf = (...cards: Card[]): CardsAnswer => ({ kind: 'cards', emulated: false, cards });
const cuda = (device = 0, memoryMb?: number, name = 'llama') => ({ name, backend: 'cuda', device, memoryMb });
const ON_CPU = [{ name: 'gpu-host-1', models: [{ name: 'llama', backend: 'onnx' }] }];
const ON_CARD = [{ name: 'gpu-host-1', models: [cuda()] }];

/** Each finding as `state name: detail | advice`. */
function linesOf(seen: Partial<CardsSeen>): string[] {
  return cardFindings({ hosts: ON_CARD, answer: cardsOf(H200), smi: [], running: false, ...seen }).map(
    ({ state, name, detail, advice }) => `${state} ${name}: ${detail}${advice ? ` | ${advice}` : ''}`,
  );
}

function assertOnlyLine(seen: Partial<CardsSeen>, text: RegExp): void {
  const lines = linesOf(seen);
  assert.equal(lines.length, 1, lines.join('\n'));
  assert.match(lines[0]!, text);
}

test('while no model computes on a card, a missing card or addon is ok, and a card that models could use gives a warning', () => {
  const none: CardsAnswer = { kind: 'no-addon', file: '/a', named: false };
  assertOnlyLine({ hosts: ON_CPU, answer: none }, /^ok cards: none; models compute on the CPU$/);
  assertOnlyLine({ hosts: ON_CPU, answer: cardsOf() }, /^ok cards: none/);
  assertOnlyLine(
    { hosts: ON_CPU, answer: none, smi: smiOf([T4]) },
    /^ok cards: NVIDIA T4 has compute capability 7\.5, for/,
  );
  assertOnlyLine(
    { hosts: ON_CPU, answer: none, smi: smiOf([T4, A100]) },
    /^warning cards: NVIDIA A100 is available, .* \| Build .*\(`npm run build:cuda -- --arch sm_80`\)/,
  );
  assertOnlyLine(
    { hosts: ON_CPU, answer: none, smi: smiOf([T4, H200]) },
    /^warning cards: NVIDIA H200 is available, but every model computes on the CPU \| Build .*\(`npm run build:cuda`\)/,
  );
});

test('a card that no model uses gives a warning', () => {
  const lines = linesOf({ hosts: ON_CPU });
  assert.match(lines[0]!, /^ok card 0: NVIDIA H200; 140\.0 GiB; compute capability 9\.0; driver for CUDA 13\.0/);
  assert.match(
    lines[1]!,
    /^warning devices: every model computes on the CPU, although NVIDIA H200 is available \| Set backend/,
  );
  assert.equal(linesOf({ hosts: ON_CPU, answer: cardsOf(A100) }).length, 1);
  const built = linesOf({ hosts: ON_CPU, answer: cardsOf({ ...A100, usable: true }) });
  assert.match(built[1]!, /^warning devices: every model computes on the CPU, although NVIDIA A100 is available/);
});

test('the doctor names the cause when a model is configured for a card and none can be used', () => {
  const missing: CardsAnswer = { kind: 'no-addon', file: '/a/pie-cuda.node', named: false };
  assertOnlyLine(
    { answer: missing },
    /^failed cards: .* there is no \/a\/pie-cuda\.node \| Build it .*build:cuda`; or set backend/,
  );
  const broken: CardsAnswer = { ...missing, named: true, why: 'not an ELF file' };
  assertOnlyLine({ answer: broken }, /pie-cuda\.node cannot be loaded: not an ELF file \| Correct PIE_CUDA_ADDON/);
  assertOnlyLine(
    { answer: cardsOf() },
    /^failed cards: .* there is no NVIDIA driver, or it shows no card \| .*--gpus all/,
  );
  assertOnlyLine(
    { answer: cardsOf(), smi: smiOf([H200]), visible: '' },
    /CUDA shows none to this process \(CUDA_VISIBLE_DEVICES is ""\)/,
  );
  const crash: CardsAnswer = { kind: 'broken', why: 'it ended with SIGSEGV' };
  assertOnlyLine({ answer: crash }, /^failed cards: .*: it ended with SIGSEGV \| Run `nvidia-smi`/);
  assertOnlyLine({ answer: crash, hosts: ON_CPU }, /^warning cards: /);
});

test('an old card or driver is a failure only where a model computes on that card', () => {
  const two = { answer: cardsOf(H200, A100) };
  assert.deepEqual(
    linesOf(two).map((line) => line.split(':')[0]),
    ['ok card 0', 'ok card 1', 'ok devices'],
  );
  const lines = linesOf({ ...two, hosts: [{ name: 'gpu-host-1', models: [cuda(1)] }] });
  assert.match(lines[1]!, /^failed card 1: NVIDIA A100; .* \| .*built for other cards.*--arch sm_80/);
  assert.match(
    linesOf({ answer: cardsOf(T4) })[0]!,
    /^failed card 0: NVIDIA T4; .* \| .*cannot be built for this card/,
  );
  assert.match(linesOf({ answer: cardsOf({ ...A100, usable: true }) })[0]!, /^ok card 0: NVIDIA A100/);
  const old = { ...H200, driverVersion: 12080 };
  assert.match(
    linesOf({ answer: cardsOf(old) })[0]!,
    /^failed card 0: .*driver for CUDA 12\.8.* \| .*install one for CUDA 13/,
  );
  assert.match(
    linesOf({ answer: cardsOf({ ...H200, driverVersion: 0 }) })[0]!,
    /^ok card 0: .*driver for CUDA unknown/,
  );
});

test('a model on a missing device is a failure', () => {
  const hosts = [0, 1, 2].map((device) => ({ name: `gpu-host-${device + 1}`, models: [cuda(device)] }));
  const lines = linesOf({ hosts, answer: cardsOf(H200, H200) });
  assert.equal(lines.length, 3);
  assert.match(
    lines[2]!,
    /^failed gpu-host-3: the model "llama" is configured for device 2, but this machine has only the devices 0 to 1 \| .*`count`/,
  );
  const fits = linesOf({ hosts, answer: cardsOf(H200, H200, H200) });
  assert.match(fits[3]!, /^ok devices: llama on device 0 \(gpu-host-1\), llama on device 1 \(gpu-host-2\), .* 2/);
});

test('memory_mb of all models on a device must fit its free memory', () => {
  const hosts = [{ name: 'gpu-host-1', models: [cuda(0, 60_000), cuda(0, 50_000, 'draft')] }];
  // The models take 60,000 + 50,000 MiB (107.4 GiB), and 100,000 MiB (97.7 GiB) are free.
  const smi = smiOf([H200], 100_000);
  assert.match(
    linesOf({ hosts, smi })[1]!,
    /^failed gpu-host-1: memory_mb gives "llama" and "draft" 107\.4 GiB of device 0, which has 97\.7 GiB free \| .*nvidia-smi/,
  );
  assert.match(linesOf({ hosts, smi: smiOf([H200], 110_000) })[1]!, /^ok devices/);
  // Free memory is unknown while the platform itself holds some, and when `nvidia-smi` lists other cards than CUDA.
  assert.match(linesOf({ hosts, smi, running: true })[1]!, /^ok devices/);
  assert.match(linesOf({ hosts, smi: smiOf([A100], 1) })[1]!, /^ok devices/);
  const large = [{ name: 'gpu-host-1', models: [cuda(0, 150_000)] }];
  assert.match(linesOf({ hosts: large })[1]!, /which has 140\.0 GiB \| Lower memory_mb\.$/);
});
