import net from 'node:net';
import { type Config, loadConfig } from '#infra/config.ts';
import { ConfigError } from '#infra/config-error.ts';
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
  const here = config.gpuHosts.filter(({ address }) => !isElsewhere(address));
  const [answer, smi, running] = await Promise.all([
    askCards(),
    askNvidiaSmi(SMI_DEADLINE_MS),
    Promise.all(here.map(({ address }) => answers(address))),
  ]);
  const seen = { answer, smi: visibleCards(smi, visible), running: running.includes(true), visible };
  yield* cardFindings({ ...seen, hosts: here });
}

function configurationFinding({ gpuHosts, models }: Config): Finding {
  const said = models.map(({ name, backend }) => `${name} by ${backend}`).join(', ');
  return { name: 'configuration', state: 'ok', detail: `${said}; ${counted(gpuHosts.length, 'GPU host')}` };
}

/** True for `host:port`, false for the path of a socket. */
const isElsewhere = (address: string): boolean => !address.includes('/') && /:\d+$/.test(address);

/** True when a process listens on a socket of this machine. */
function answers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(socketPath);
    const done = (there: boolean) => {
      socket.destroy();
      resolve(there);
    };
    socket.setTimeout(CONNECT_DEADLINE_MS, () => done(false));
    socket.once('connect', () => done(true));
    socket.once('error', () => done(false));
  });
}
