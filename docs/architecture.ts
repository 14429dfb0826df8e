/**
 * Draws `docs/architecture.svg`: the rooms, their main folders, and which room imports which, from the imports in the sources.
 * `npm run generate` writes the file. The places of rooms and arrows are set here by hand: a new edge between rooms needs a `ROUTES` entry.
 */
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
export const ARCHITECTURE_FILE = fileURLToPath(new URL('architecture.svg', import.meta.url));

interface Room {
  readonly what: string;
  readonly color: string;
  /** Left edge, top edge and width in pixels. */
  readonly place: readonly [x: number, y: number, width: number];
}

const ROOMS: Readonly<Record<string, Room>> = {
  gateway: { what: 'HTTP, the command, the dashboard', color: '#2563eb', place: [20, 20, 340] },
  runtime: { what: 'runs guests in sandboxes', color: '#c2410c', place: [420, 20, 480] },
  functions: { what: 'inferlets and their library', color: '#a21caf', place: [960, 20, 320] },
  infra: { what: 'starts and watches processes', color: '#475569', place: [110, 290, 250] },
  'gpu-host': { what: 'owns a device: batches, memory, models', color: '#15803d', place: [490, 290, 330] },
  'index-host': { what: 'vector indexes', color: '#0e7490', place: [850, 290, 160] },
  scheduler: { what: 'the shared state in Redis, admission, policies', color: '#b45309', place: [20, 540, 780] },
  wit: { what: 'the contract with guests', color: '#be123c', place: [860, 540, 420] },
};

/** Heights of the rooms in pixels, by their top edge: rooms of one row are equally high. */
const HEIGHTS: Readonly<Record<number, number>> = { 20: 190, 290: 165, 540: 180 };

/** The corners of each arrow, from the importing room to the imported one. */
const ROUTES: Readonly<Record<string, string>> = {
  'gateway infra': 'M240 210 V286',
  'gateway runtime': 'M360 110 H416',
  'gateway scheduler': 'M60 210 V536',
  'gateway wit': 'M92 210 V520 H890 V536',
  'infra scheduler': 'M240 455 V536',
  'runtime infra': 'M438 210 V330 H364',
  'runtime scheduler': 'M464 210 V536',
  'runtime gpu-host': 'M650 210 V286',
  'runtime index-host': 'M876 210 V286',
  'runtime functions': 'M900 110 H956',
  'runtime wit': 'M900 180 H930 V250 H1060 V536',
  'gpu-host infra': 'M490 390 H364',
  'gpu-host scheduler': 'M620 455 V536',
  'gpu-host wit': 'M790 455 V502 H930 V536',
  'index-host infra': 'M900 455 V480 H330 V459',
  'index-host scheduler': 'M870 455 V518 H760 V536',
  'functions wit': 'M1200 210 V536',
};

/** A folder of a room; `.` stands for the modules that lie in the room itself. */
type Folder = string;

interface Imports {
  /** The numbers of files that import something of another room, by `<importing room> <imported room>`. */
  readonly rooms: ReadonlyMap<string, number>;
  /** The rooms that import something of a folder, by `<room>/<folder>`. */
  readonly importers: ReadonlyMap<string, ReadonlySet<string>>;
  /** The main folders of each room. */
  readonly folders: ReadonlyMap<string, readonly Folder[]>;
}

const LEFT_OUT = /\.test\.|bench|\.d\.ts$|(^|\/)(testing|fixtures|node_modules|dist|pack)\//;

/** Folders with fewer lines are not drawn, unless another room imports them. */
const MAIN_FOLDER_LINES = 100;

/** The folder of a file. All bundled functions count as one folder. */
function folderOf(file: string): Folder {
  const [room = '', ...rest] = file.split('/');
  const [folder = '.'] = rest.length > 1 ? rest : ['.'];
  if (room === 'functions' && existsSync(path.join(ROOT, room, folder, 'pie.json'))) return 'the inferlets';
  return folder;
}

function readImports(): Imports {
  const rooms = new Map<string, number>();
  const importers = new Map<string, Set<string>>();
  const folders = new Map<string, readonly Folder[]>();
  for (const room of Object.keys(ROOMS)) {
    const lines = new Map<Folder, number>();
    const files = globSync(`${room}/**/*.{ts,tsx,lua,cu,cc,h,c,rs,js,wit}`, {
      cwd: ROOT,
      exclude: ['**/node_modules/**'],
    });
    for (const file of files.filter((name) => !LEFT_OUT.test(name))) {
      const text = readFileSync(path.join(ROOT, file), 'utf8');
      lines.set(folderOf(file), (lines.get(folderOf(file)) ?? 0) + text.split('\n').length);
      if (!/\.tsx?$/.test(file)) continue;
      const imported = new Set(importedFiles(file, text).filter((name) => !name.startsWith(`${room}/`)));
      const others = new Set<string>();
      for (const name of imported) {
        const [other = ''] = name.split('/');
        if (ROOMS[other] === undefined) continue;
        others.add(other);
        const folder = `${other}/${folderOf(name)}`;
        importers.set(folder, (importers.get(folder) ?? new Set()).add(room));
      }
      for (const other of others) rooms.set(`${room} ${other}`, (rooms.get(`${room} ${other}`) ?? 0) + 1);
    }
    folders.set(
      room,
      [...lines].filter(([, count]) => count >= MAIN_FOLDER_LINES).map(([folder]) => folder),
    );
  }
  for (const place of importers.keys()) {
    const [room = '', folder = ''] = place.split('/');
    const known = folders.get(room) ?? [];
    if (!known.includes(folder)) folders.set(room, [...known, folder]);
  }
  return { rooms, importers, folders };
}

/** Paths of the files that a module imports. Guests import the contract as `pie:inferlet/…`. */
function importedFiles(file: string, text: string): string[] {
  return [...text.matchAll(/(?:from|import\(|import)\s*['"]([^'"]+)['"]/g)].flatMap(([, name = '']) => {
    if (name.startsWith('#')) return [name.slice(1)];
    if (name.startsWith('.')) return [path.posix.join(path.posix.dirname(file), name)];
    return name.startsWith('pie:') ? ['wit/world.wit'] : [];
  });
}

/** The text of the picture. */
export function renderArchitecture(): string {
  const { rooms, importers, folders } = readImports();
  const missing = [...rooms.keys()].filter((edge) => ROUTES[edge] === undefined);
  if (missing.length > 0) throw new Error(`docs/architecture.ts has no route for ${missing.join(', ')}.`);
  const arrows = [...rooms]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([edge, files]) => {
      const [from = ''] = edge.split(' ');
      return `<path d="${ROUTES[edge]}" stroke="${ROOMS[from]?.color}" stroke-width="${strokeWidth(files)}" marker-end="url(#${from})"><title>${edge.replace(' ', ' imports ')}</title></path>`;
    });
  const markers = Object.entries(ROOMS).map(
    ([room, { color }]) =>
      `<marker id="${room}" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="11" markerHeight="11" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="${color}"/></marker>`,
  );
  const boxes = Object.entries(ROOMS).map(([name, room]) => roomBox(name, room, folders.get(name) ?? [], importers));
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1300 810" font-family="system-ui, sans-serif" font-size="13">
<title>The rooms of Pie, their main folders, and their imports</title>
<rect width="1300" height="810" fill="#ffffff"/>
<defs>
${markers.join('\n')}
</defs>
${boxes.join('\n')}
<g fill="none" stroke-linejoin="round">
${arrows.join('\n')}
</g>
${legend()}
</svg>
`;
}

/** Three widths, for up to 5 importing files, up to 25, and more. */
const strokeWidth = (files: number): number => (files > 25 ? 4 : files > 5 ? 2.5 : 1.3);

function roomBox(
  name: string,
  { what, color, place }: Room,
  folders: readonly Folder[],
  importers: Imports['importers'],
): string {
  const [x, y, width] = place;
  const parts = [
    `<rect x="${x}" y="${y}" width="${width}" height="${HEIGHTS[y]}" rx="8" fill="${color}" fill-opacity="0.07" stroke="${color}" stroke-width="1.5"/>`,
    `<text x="${x + 12}" y="${y + 24}" font-size="17" font-weight="700" fill="${color}">${name}</text>`,
    `<text x="${x + 12}" y="${y + 42}" font-size="12" fill="#334155">${what}</text>`,
  ];
  let [left, top] = [x + 12, y + 54];
  for (const folder of folders.toSorted()) {
    const rooms = Object.keys(ROOMS).filter((room) => importers.get(`${name}/${folder}`)?.has(room));
    const label = folder === '.' ? (name === 'wit' ? '*.wit, *.ts' : '*.ts') : folder;
    const chip = 18 + label.length * 7.7 + rooms.length * 11;
    if (left + chip > x + width - 8) [left, top] = [x + 12, top + 27];
    parts.push(
      `<rect x="${left}" y="${top}" width="${chip}" height="22" rx="5" fill="#ffffff" stroke="#cbd5e1"/>`,
      `<text x="${left + 7}" y="${top + 15}" fill="#0f172a">${label}</text>`,
      ...rooms.map((room, index) =>
        dot(left + chip - 3 - rooms.length * 11 + index * 11, top + 11, ROOMS[room]?.color ?? ''),
      ),
    );
    left += chip + 6;
  }
  return parts.join('\n');
}

const dot = (x: number, y: number, color: string): string => `<circle cx="${x}" cy="${y}" r="4" fill="${color}"/>`;

function legend(): string {
  const lines = [3, 15, 30].map((files, index) => {
    const x = 20 + index * 130;
    const text = ['1 to 5 files', '6 to 25', 'more'][index];
    return `<path d="M${x} 752 H${x + 36}" stroke="#475569" stroke-width="${strokeWidth(files)}" fill="none" marker-end="url(#infra)"/><text x="${x + 46}" y="756" fill="#334155">${text}</text>`;
  });
  const dots = Object.entries(ROOMS)
    .filter(([room]) => Object.keys(ROUTES).some((edge) => edge.startsWith(`${room} `)))
    .map(
      ([room, { color }], index) =>
        `${dot(470 + index * 110, 784, color)}<text x="${480 + index * 110}" y="788" fill="#334155">${room}</text>`,
    );
  return `<text x="410" y="756" fill="#334155">An arrow has the colour of the room that imports; its width says how many files do. Tests are left out; *.ts stands for modules outside of folders.</text>
${lines.join('\n')}
<text x="20" y="788" fill="#334155">A dot beside a folder: this room imports modules of the folder:</text>
${dots.join('\n')}`;
}
