import cliProgress from 'cli-progress';
import type { PullProgress } from './pull.ts';

/** Shows a pull on stderr; stdout is for results. */
export interface ProgressView {
  update(progress: PullProgress): void;
  /** Ends the display; a second call does nothing. */
  stop(): void;
}

/** Shortest time between two lines of the same phase in `lineProgress`. */
const LINE_INTERVAL_MS = 5_000;

/** A bar with rate and time left, for a terminal. */
export function barProgress(name: string): ProgressView {
  const bar = new cliProgress.SingleBar(
    {
      format: '{step} [{bar}] {percentage}% {amount} {rate}',
      stream: process.stderr,
      hideCursor: true,
      clearOnComplete: true,
      fps: 8,
      barsize: 30,
      barCompleteChar: '#',
      barIncompleteChar: '-',
      gracefulExit: false,
    },
    cliProgress.Presets.legacy,
  );
  let isRunning = false;
  let rate = createRate();
  let step = '';
  const show = (label: string, done: number, total: number, payload: { amount: string; rate: string }) => {
    if (!isRunning) bar.start(total, done, { step: label, ...payload });
    isRunning = true;
    bar.setTotal(total);
    bar.update(done, { step: label, ...payload });
  };
  return {
    update(progress) {
      switch (progress.phase) {
        case 'download': {
          const { file, doneBytes, totalBytes } = progress;
          if (step !== file) rate = createRate();
          step = file;
          const perSecond = rate(doneBytes);
          const timeLeft =
            totalBytes === null || perSecond === 0 ? '' : `${Math.ceil((totalBytes - doneBytes) / perSecond)} s left`;
          show(file, doneBytes, totalBytes ?? doneBytes, {
            amount:
              totalBytes === null ? formatBytes(doneBytes) : `${formatBytes(doneBytes)}/${formatBytes(totalBytes)}`,
            rate: perSecond === 0 ? '' : `${formatBytes(perSecond)}/s ${timeLeft}`,
          });
          break;
        }
        case 'convert':
          show(`${name}: converting`, progress.done, progress.total, {
            amount: `${progress.done}/${progress.total} tensors`,
            rate: '',
          });
          break;
        case 'wait':
          process.stderr.write(`${name}: another process is pulling it, waiting\n`);
          break;
        case 'unpack':
        case 'check':
          break;
      }
    },
    stop() {
      if (isRunning) bar.stop();
      isRunning = false;
    },
  };
}

/** Plain lines for pipes and logs: one at the start of each phase, and more during long phases. */
export function lineProgress(name: string, isVisible: boolean): ProgressView {
  let lastPhase = '';
  let lastLineMs = 0;
  const line = (text: string) => {
    if (isVisible) process.stderr.write(`${text}\n`);
  };
  return {
    update(progress) {
      const phase = progress.phase === 'download' ? `download ${progress.file}` : progress.phase;
      const now = performance.now();
      const phaseChanged = phase !== lastPhase;
      const isLongPhase = progress.phase === 'download' || progress.phase === 'convert';
      if (!phaseChanged && !(isLongPhase && now - lastLineMs > LINE_INTERVAL_MS)) return;
      lastPhase = phase;
      lastLineMs = now;
      switch (progress.phase) {
        case 'download': {
          const { file, doneBytes, totalBytes } = progress;
          const totalText =
            totalBytes === null
              ? ''
              : ` of ${formatBytes(totalBytes)} (${Math.floor((100 * doneBytes) / (totalBytes || 1))} %)`;
          line(`${name}: downloading ${file}: ${formatBytes(doneBytes)}${totalText}`);
          break;
        }
        case 'wait':
          line(`${name}: another process is pulling it, waiting`);
          break;
        case 'unpack':
          line(`${name}: unpacking`);
          break;
        case 'convert':
          line(`${name}: writing tensors: ${progress.done} of ${progress.total}`);
          break;
        case 'check':
          line(`${name}: checking`);
      }
    },
    stop() {},
  };
}

/** Bytes for people, in decimal units. */
export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${Math.round(bytes)} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let value = bytes / 1000;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** Measures bytes per second since the first call. Does not count bytes that a resumed download had before that call. */
function createRate(): (doneBytes: number) => number {
  let start: { ms: number; bytes: number } | null = null;
  return (doneBytes) => {
    const now = performance.now();
    // When the server cannot resume, the download starts over, and so does the measurement.
    if (start === null || doneBytes < start.bytes) start = { ms: now, bytes: doneBytes };
    const seconds = (now - start.ms) / 1000;
    // The first half second gives no usable rate.
    return seconds < 0.5 ? 0 : (doneBytes - start.bytes) / seconds;
  };
}
