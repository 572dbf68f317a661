// What belongs to a message or to a tool's result beside its words: pictures, recordings, files to download.

import type { FilePart } from "./api";
import { w } from "./words-beside";

export default function Files({ files, conversation }: { files: FilePart[]; conversation: string }) {
  if (!files.length) return null;
  return (
    <ul class="files">
      {files.map((file) => {
        const address = `/v1/conversations/${conversation}/attachments/${file.attachment_id}`;
        const kind = file.media_type ?? "";
        const picture = /^image\/(png|jpeg|gif|webp)$/.test(kind);
        return (
          <li key={file.attachment_id}>
            {/^audio\//.test(kind) || /^recording.*\.(webm|ogg|m4a|wav)$/.test(file.name ?? "") ? (
              <audio controls preload="none" src={address} aria-label={file.name || w.files.recording} />
            ) : (
              <a href={address} target="_blank" rel="noopener">
                {picture ? <img src={address} alt={file.name || w.files.picture} loading="lazy" /> : `📎 ${file.name || file.attachment_id}`}
              </a>
            )}
            {file.transcript && <p class="quiet transcript">{file.transcript}</p>}
          </li>
        );
      })}
    </ul>
  );
}
