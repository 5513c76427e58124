#!/bin/sh
# A whole study by files alone: some sites, a coordinator, and a folder that stands for the mail.
#
#   examples/by-files/run.sh FOLDER [OPTION...]
#
# works in FOLDER, which must not exist; options are those of fedsplit study new. SITES names other
# sites than all six, as in SITES="site1 site2 site3". docs/by-files.md explains every command.
set -eu
rows=$(cd "$(dirname "$0")/../randhie" && pwd)
mkdir "$1" && cd "$1" && shift
sites=${SITES:-site1 site2 site3 site4 site5 site6}

# Once: every site makes its own key, and the coordinator signs it.
fedsplit keys init federation --host localhost
for site in $sites; do
    fedsplit keys request "$site"
    fedsplit keys sign federation "$site/$site.csr"
    fedsplit site init "$site" "federation/$site.pem" --data "$rows/$site.csv"
done

# The coordinator writes a study, and tells its hash to the sites by telephone.
fedsplit study new federation/visits.toml --from "$rows/site1.csv" --family poisson "$@" \
    --formula "mdvis ~ logc + idp + linc + xage + female + physlm + disea + C(health)"

# Questions and answers, until there are no more questions. The first one is the study itself, which
# the owner of each site approves.
until fedsplit study ask federation/visits.toml --post post; do
    for site in $sites; do
        fedsplit site answer "$site" "post/$site"
        if [ ! -e "$site/approved" ]; then
            hash=$(fedsplit site status "$site" --json | python3 -c \
                'import json, sys; print(json.load(sys.stdin)["studies"][0]["hash"])')
            fedsplit site approve "$site" "$hash"
            touch "$site/approved"
            fedsplit site answer "$site" "post/$site"
        fi
    done
done
fedsplit study combine federation/visits.toml --out result
