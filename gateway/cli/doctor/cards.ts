import { type Config, loadConfig } from '#infra/config.ts';
import { ConfigError } from '#infra/config-error.ts';
import { tryConnect } from '../connect.ts';
import { counted } from '../format.ts';
import { askCards } from './ask-cards.ts';
import { cardFindings } from './card-findings.ts';
import type { Finding } from './finding.ts';
import { askNvidiaSmi, visibleCards } from './nvidia-smi.ts';

const SMI_DEADLINE_MS = 15_000;
const CONNECT_DEADLINE_MS = 1000;

/** Checks the configuration against this machine's cards. */
export async function* checkCards(): AsyncGenerator<Finding> {
  let config: Config;
  try {
    config = loadConfig();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    yield {
      name: 'configuration',
      state: 'failed',
      detail: error.message,
      advice: 'Correct the setting that it names.',
    };
    return;
  }
  yield configurationFinding(config);
  const { CUDA_VISIBLE_DEVICES: visible } = process.env;
  const localHosts = config.gpuHosts.filter(({ address }) => !isElsewhere(address));
  const [answer, smi, problems] = await Promise.all([
    askCards(),
    askNvidiaSmi(SMI_DEADLINE_MS),
    Promise.all(localHosts.map(({ address }) => tryConnect({ path: address }, CONNECT_DEADLINE_MS))),
  ]);
  // `tryConnect` returns null when a GPU host of this machine accepts the connection: then the platform runs.
  const cardsSeen = { answer, smi: visibleCards(smi, visible), running: problems.includes(null), visible };
  yield* cardFindings({ ...cardsSeen, hosts: localHosts });
}

function configurationFinding({ gpuHosts, models }: Config): Finding {
  const modelsText = models.map(({ name, backend }) => `${name} by ${backend}`).join(', ');
  return { name: 'configuration', state: 'ok', detail: `${modelsText}; ${counted(gpuHosts.length, 'GPU host')}` };
}

/** True for `host:port`, false for the path of a socket. */
const isElsewhere = (address: string): boolean => !address.includes('/') && /:\d+$/.test(address);
