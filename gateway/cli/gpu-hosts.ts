import type { EncoderLoad, HostedModel, ModelLoad, PlatformLoad } from '../app/resources/operations.ts';
import { backendText, deviceText, hostState } from '../app/resources/platform-texts.ts';
import { bytes, number } from './format.ts';
import type { Terminal } from './terminal.ts';

const HEADING = ['GPU HOST', 'STATE', 'RUNNING', 'MODEL', 'BACKEND', 'DEVICE', 'MEMORY', 'PAGES', 'BUSY', 'BATCH'];

/**
 * Prints a line per model and encoder of each GPU host, with its device and recent load; a single line for a host
 * without any.
 */
export function showHosts(
  terminal: Terminal,
  { gpuHosts, models, encoders }: Pick<PlatformLoad, 'gpuHosts' | 'models' | 'encoders'>,
): void {
  const rows = gpuHosts.flatMap((host) => {
    const loads = models.filter(({ gpuHost }) => gpuHost === host.name);
    const hostEncoders = encoders.filter(({ gpuHost }) => gpuHost === host.name);
    terminal.value({ ...host, load: loads, encoders: hostEncoders });
    const hostCells = [host.name, hostState(host), number(host.running)];
    const modelCells = host.models.map((hosted) =>
      cells(
        hosted,
        loads.find(({ model }) => model === hosted.model),
      ),
    );
    const loadCells = [...modelCells, ...hostEncoders.map(encoderCells)];
    if (loadCells.length === 0) loadCells.push(Array.from({ length: HEADING.length - hostCells.length }, () => '-'));
    return loadCells.map((each) => [...hostCells, ...each]);
  });
  terminal.table(HEADING, rows, 'No GPU host is known. Run `pie doctor` to check the runtime.');
}

function cells(hosted: HostedModel, load: ModelLoad | undefined): string[] {
  const { model, memory, pages } = hosted;
  const used = load && load.pages - load.freePages - load.cachedPages;
  return [
    model,
    backendText(hosted),
    deviceText(hosted),
    memory === null ? '-' : `${bytes(memory.takenBytes)} of ${bytes(memory.totalBytes)}`,
    used === undefined ? number(pages) : `${number(used)} of ${number(pages)}`,
    load ? `${Math.round(100 * load.utilisation)}%` : '-',
    load?.batchSize ? number(load.batchSize) : '-',
  ];
}

function encoderCells({ encoder, kind, device, deviceIndex, utilisation, batchSize }: EncoderLoad): string[] {
  return [
    encoder,
    kind,
    deviceText({ device, deviceIndex }),
    '-',
    '-',
    `${Math.round(100 * utilisation)}%`,
    batchSize ? number(batchSize) : '-',
  ];
}
