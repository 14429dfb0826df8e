import { execFile } from 'node:child_process';
import { bytes, counted } from '../format.ts';
import type { Card, CardsAnswer } from './ask-cards.ts';
import type { Finding } from './checks.ts';

/** The devices in a GPU host's configuration. */
interface HostPlan {
  readonly name: string;
  readonly models: readonly {
    readonly name: string;
    readonly backend: string;
    readonly device?: number | undefined;
    readonly memoryMb?: number | undefined;
  }[];
}

export interface CardsSeen {
  /** The GPU hosts of this machine. */
  readonly hosts: readonly HostPlan[];
  readonly answer: CardsAnswer;
  /** The cards in the output of `nvidia-smi` that are visible to this process. */
  readonly smi: readonly SmiCard[];
  /** True when the platform runs; it may itself hold the memory that is not free. */
  readonly running: boolean;
  /** `CUDA_VISIBLE_DEVICES`. */
  readonly visible?: string | undefined;
}

/** The command that builds the addon, by the compute capability of the cards. */
const BUILDS: Readonly<Record<string, string>> = {
  '8.0': 'npm run build:cuda -- --arch sm_80',
  '8.6': 'npm run build:cuda -- --arch sm_86',
  '8.9': 'npm run build:cuda -- --arch sm_89',
  '9.0': 'npm run build:cuda',
  '10.0': 'npm run build:cuda -- --arch sm_100',
  '10.3': 'npm run build:cuda -- --arch sm_100',
  '12.0': 'npm run build:cuda -- --arch sm_120',
  '12.1': 'npm run build:cuda -- --arch sm_120',
};
const MIB = 2 ** 20;
/** With more models, a finding shows only how many there are. */
const MAX_LISTED_MODELS = 8;
const ON_CPU = 'set backend = "onnx" in pie.toml to compute on the CPU';

/** Findings about this machine's cards and the configuration that uses them. */
export function cardFindings(cardsSeen: CardsSeen): Finding[] {
  const { answer, hosts } = cardsSeen;
  const wantsCuda = hosts.some(({ models }) => models.some(({ backend }) => backend === 'cuda'));
  if (answer.kind === 'broken') return [brokenFinding(answer.why, wantsCuda)];
  if (answer.kind === 'no-addon') return [wantsCuda ? noAddonFinding(answer) : unusedFinding(cardsSeen.smi)];
  if (answer.cards.length === 0) return [wantsCuda ? noCardFinding(cardsSeen) : unusedFinding(cardsSeen.smi)];
  const usedDevices = new Set(plannedModels(hosts).map(({ device }) => device));
  const findings = answer.cards.map((card, i) =>
    cardFinding(`card ${i}`, card, {
      ...cardsSeen,
      free: freeBytes(cardsSeen, i),
      used: usedDevices.has(i),
      emulated: answer.emulated,
    }),
  );
  return [
    ...findings,
    ...(wantsCuda ? planFindings(cardsSeen, answer.cards) : unusedCardFindings(answer.cards, answer.emulated)),
  ];
}

function brokenFinding(why: string, wantsCuda: boolean): Finding {
  return {
    name: 'cards',
    state: wantsCuda ? 'failed' : 'warning',
    detail: `the process that asks the CUDA addon for cards gave no answer: ${why}`,
    advice:
      'Run `nvidia-smi`. If it fails as well, restart the driver or the card. Otherwise build the addon again: `npm run build:cuda`.',
  };
}

function noAddonFinding({ file, named, why }: Extract<CardsAnswer, { kind: 'no-addon' }>): Finding {
  const problem = why === undefined ? `there is no ${file}` : `${file} cannot be loaded: ${why}`;
  const build = named ? 'Correct PIE_CUDA_ADDON, which names it' : 'Build it in a clone of Pie: `npm run build:cuda`';
  return {
    name: 'cards',
    state: 'failed',
    detail: `the configuration has backend = "cuda", and ${problem}`,
    advice: `${build}; or ${ON_CPU}.`,
  };
}

function noCardFinding({ smi, visible }: CardsSeen): Finding {
  const hidden = visible === undefined ? '' : ` (CUDA_VISIBLE_DEVICES is "${visible}")`;
  const problem = smi.length > 0 ? 'CUDA shows none to this process' : 'there is no NVIDIA driver, or it shows no card';
  return {
    name: 'cards',
    state: 'failed',
    detail: `the configuration has backend = "cuda", and ${problem}${hidden}`,
    advice: `Check that \`nvidia-smi\` lists the card; a container needs \`--gpus all\`. Or ${ON_CPU}.`,
  };
}

/** The finding when no model needs a card: mentions a card that models could use. */
function unusedFinding(smi: readonly SmiCard[]): Finding {
  const card = smi.find(({ capability }) => BUILDS[capability]);
  if (card)
    return {
      name: 'cards',
      state: 'warning',
      detail: `${card.name} is available, but every model computes on the CPU`,
      advice: `Build the CUDA backend (\`${BUILDS[card.capability]}\`), and set backend = "cuda" in pie.toml.`,
    };
  const [otherCard] = smi;
  const detail = otherCard
    ? `${otherCard.name} has compute capability ${otherCard.capability}, for which the CUDA backend cannot be built; models compute on the CPU`
    : 'none; models compute on the CPU';
  return { name: 'cards', state: 'ok', detail };
}

function unusedCardFindings(cards: readonly Card[], emulated: boolean): Finding[] {
  const card = cards.find(({ usable }) => usable);
  if (!card || emulated) return [];
  const detail = `every model computes on the CPU, although ${card.name} is available`;
  return [{ name: 'devices', state: 'warning', detail, advice: 'Set backend = "cuda" in pie.toml.' }];
}

interface CardState {
  readonly free: number | undefined;
  readonly used: boolean;
  readonly emulated: boolean;
  readonly running: boolean;
}

function cardFinding(name: string, card: Card, { free, used, emulated, running }: CardState): Finding {
  const { capability, driverVersion, runtimeVersion, memoryBytes } = card;
  const freeText =
    free === undefined ? '' : `, of which ${bytes(free)} free${running ? ' beside the running platform' : ''}`;
  const versions = `driver for CUDA ${versionText(driverVersion)}, runtime ${versionText(runtimeVersion)}`;
  const detail = `${card.name}; ${bytes(memoryBytes)}${freeText}; compute capability ${capability}; ${versions}`;
  if (emulated)
    return {
      name,
      state: 'warning',
      detail: `${detail}; emulated on the CPU, which is slow and for tests`,
      advice: 'Unset PIE_CUDA_ADDON, unless this is a test.',
    };
  const faultState = used ? 'failed' : 'ok';
  if (!card.usable) {
    const build = BUILDS[capability];
    const advice = `The CUDA backend ${build ? `was built for other cards: build it for this one (\`${build}\`)` : 'cannot be built for this card'}; or ${ON_CPU}.`;
    return { name, state: faultState, detail, ...(used && { advice }) };
  }
  if (driverVersion > 0 && major(driverVersion) < major(runtimeVersion)) {
    const advice = `The driver is older than the addon's runtime: install one for CUDA ${major(runtimeVersion)}, or build the addon with an older nvcc.`;
    return { name, state: faultState, detail, ...(used && { advice }) };
  }
  return { name, state: 'ok', detail };
}

/** Checks that each model's device exists, and that its memory limit is free there. */
function planFindings(cardsSeen: CardsSeen, cards: readonly Card[]): Finding[] {
  const plan = plannedModels(cardsSeen.hosts);
  const missing = plan.filter(({ device }) => device >= cards.length);
  const findings = missing.map(({ host, model, device }): Finding => {
    const devicesText =
      cards.length === 1
        ? 'this machine has only device 0'
        : `this machine has only the devices 0 to ${cards.length - 1}`;
    return {
      name: host,
      state: 'failed',
      detail: `the model "${model}" is configured for device ${device}, but ${devicesText}`,
      advice:
        'Correct `device` of the [[model]], or lower `count` of [gpu_host]: each GPU host takes the devices after those of the one before.',
    };
  });
  const byDevice = Map.groupBy(plan, ({ device }) => device);
  for (const [device, models] of byDevice) {
    const card = cards[device];
    const wantedMb = models.reduce((sum, { memoryMb }) => sum + memoryMb, 0);
    if (!card || wantedMb === 0) continue;
    const free = cardsSeen.running ? undefined : freeBytes(cardsSeen, device);
    if (wantedMb * MIB <= (free ?? card.memoryBytes)) continue;
    const names = models.filter(({ memoryMb }) => memoryMb > 0).map(({ model }) => `"${model}"`);
    findings.push({
      name: models[0]?.host ?? 'devices',
      state: 'failed',
      detail: `memory_mb gives ${names.join(' and ')} ${bytes(wantedMb * MIB)} of device ${device}, which has ${bytes(free ?? card.memoryBytes)}${free === undefined ? '' : ' free'}`,
      advice:
        free === undefined
          ? 'Lower memory_mb.'
          : 'Lower memory_mb, or end the other programs on this card: `nvidia-smi` lists them.',
    });
  }
  if (findings.length > 0) return findings;
  const placements = plan.map(({ host, model, device }) => `${model} on device ${device} (${host})`);
  const detail =
    placements.length > MAX_LISTED_MODELS
      ? `${counted(placements.length, 'model')} on ${counted(byDevice.size, 'device')}`
      : placements.join(', ');
  return [{ name: 'devices', state: 'ok', detail }];
}

interface PlannedModel {
  readonly host: string;
  readonly model: string;
  readonly device: number;
  /** Limit of the model's memory; 0 when the model takes all free memory. */
  readonly memoryMb: number;
}

function plannedModels(hosts: readonly HostPlan[]): PlannedModel[] {
  return hosts.flatMap(({ name: host, models }) =>
    models
      .filter(({ backend }) => backend === 'cuda')
      .map(({ name: model, device = 0, memoryMb = 0 }) => ({ host, model, device, memoryMb })),
  );
}

/** Free memory of a device; unknown when `nvidia-smi` lists other cards than CUDA, or in another order. */
function freeBytes({ answer, smi }: CardsSeen, device: number): number | undefined {
  if (answer.kind !== 'cards' || answer.cards.length !== smi.length) return undefined;
  if (answer.cards.some(({ name }, i) => name !== smi[i]?.name)) return undefined;
  const freeMb = smi[device]?.freeMb;
  return freeMb === undefined ? undefined : freeMb * MIB;
}

const major = (version: number): number => Math.floor(version / 1000);

/** CUDA encodes 13.0 as 13000. */
function versionText(version: number): string {
  return version === 0 ? 'unknown' : `${major(version)}.${Math.floor((version % 1000) / 10)}`;
}

/** A card in the output of `nvidia-smi`. */
export interface SmiCard {
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  readonly totalMb: number;
  readonly freeMb: number;
  /** Such as `9.0`. */
  readonly capability: string;
}

const FIELDS = 'index,uuid,name,memory.total,memory.free,compute_cap';

/**
 * The cards of this machine, in slot order; empty when `nvidia-smi` is missing or does not answer. The program comes with the driver. Unlike a
 * CUDA context, it takes no memory of the cards.
 */
export function askNvidiaSmi(timeoutMs: number): Promise<SmiCard[]> {
  return new Promise((resolve) => {
    const args = [`--query-gpu=${FIELDS}`, '--format=csv,noheader,nounits'];
    const child = execFile('nvidia-smi', args, (error, stdout) => done(error ? [] : parseSmi(stdout)));
    // The kill has no effect on a process that hangs in the driver: do not wait for it.
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      child.unref();
      child.stdout?.destroy();
      child.stderr?.destroy();
      done([]);
    }, timeoutMs);
    const done = (cards: SmiCard[]) => {
      clearTimeout(timer);
      resolve(cards);
    };
  });
}

const numberOf = (text = ''): number => (text === '' ? Number.NaN : Number(text));

/**
 * Parses the output of `nvidia-smi`. Drops a card that lacks one of its values, or has text (`[N/A]`) in place of a
 * number.
 */
export function parseSmi(text: string): SmiCard[] {
  return text.split('\n').flatMap((line) => {
    const [index, uuid, name, total, free, capability] = line.split(',').map((field) => field.trim());
    const card = { index: numberOf(index), totalMb: numberOf(total), freeMb: numberOf(free) };
    if (!uuid || !name || !capability || Object.values(card).some((value) => !Number.isFinite(value))) return [];
    return [{ ...card, uuid, name, capability }];
  });
}

/**
 * The cards that CUDA shows to a process, in the order of `CUDA_VISIBLE_DEVICES`; without that variable, all in the
 * order of `nvidia-smi`. CUDA may number cards of different kinds in another order. Like CUDA, the function ignores all entries (indices or id
 * prefixes) from the first invalid one on.
 */
export function visibleCards(cards: readonly SmiCard[], visible: string | undefined): readonly SmiCard[] {
  if (visible === undefined) return cards;
  const shown: SmiCard[] = [];
  for (const word of visible.split(',').map((each) => each.trim())) {
    const card = cards.find(({ index, uuid }) =>
      /^\d+$/.test(word) ? index === Number(word) : word !== '' && uuid.startsWith(word),
    );
    if (!card) break;
    shown.push(card);
  }
  return shown;
}
