/** Files that tasks find beside them: dropped or chosen, hashed here, sent once. */
import { useState } from "preact/hooks";
import { asProblem } from "../api/client";
import { amount } from "../text/human";
import { Button } from "../ui/Button";
import { upload } from "./upload";

export interface InputFile {
  path: string;
  size: number | null; // of one that an earlier job had nobody says it
  share: number; // hashed so far
  hash: string | null;
  isExecutable: boolean;
  problem: string | null;
}

interface Props {
  files: InputFile[];
  onChange: (change: (files: InputFile[]) => InputFile[]) => void;
}

export function FilesField({ files, onChange }: Props) {
  const [isOver, setOver] = useState(false);

  function add(list: Iterable<File>): void {
    for (const file of list) void send(file, pathOf(file), onChange);
  }

  return (
    <fieldset>
      <legend>Files</legend>
      <div
        class={isOver ? "drop over" : "drop"}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          add(event.dataTransfer?.files ?? []);
        }}
      >
        <label>
          Drop files here, or choose them
          <input type="file" multiple onChange={(event) => add(event.currentTarget.files ?? [])} />
        </label>
      </div>
      {files.length > 0 && (
        <ul class="uploads">
          {files.map((file) => (
            <li key={file.path}>
              <code>{file.path}</code> {file.size !== null && <span class="faint number">{amount(file.size)}</span>}{" "}
              <span class={file.problem ? "bad" : "faint"}>
                {file.problem ?? (file.hash ? "sent" : `sending … ${Math.round(file.share * 100)} %`)}
              </span>
              <label>
                <input
                  type="checkbox"
                  checked={file.isExecutable}
                  onChange={(event) =>
                    onChange((all) => changed(all, file.path, { isExecutable: event.currentTarget.checked }))
                  }
                />
                executable
              </label>
              <Button
                kind="quiet"
                label={`Remove ${file.path}`}
                onClick={() => onChange((all) => all.filter((one) => one.path !== file.path))}
              >
                Remove
              </Button>
            </li>
          ))}
        </ul>
      )}
    </fieldset>
  );
}

async function send(file: File, path: string, onChange: Props["onChange"]): Promise<void> {
  const update = (part: Partial<InputFile>) => onChange((all) => changed(all, path, part));
  const fresh: InputFile = { path, size: file.size, share: 0, hash: null, isExecutable: false, problem: null };
  onChange((all) => [...all.filter((one) => one.path !== path), fresh]);
  try {
    update({ hash: await upload(file, (share) => update({ share }), new AbortController().signal) });
  } catch (error) {
    update({ problem: asProblem(error).message });
  }
}

const changed = (all: InputFile[], path: string, part: Partial<InputFile>): InputFile[] =>
  all.map((one) => (one.path === path ? { ...one, ...part } : one));

const pathOf = (file: File): string => file.webkitRelativePath || file.name;
