use softhca::Hca;

#[test]
fn my_code_leaves_nothing_on_the_device() {
    let hca = Hca::new().unwrap();          // mlx5_N, visible to ibv_get_device_list from here on
    my_code(hca.name());                    // opens it by libibverbs, as it would a ConnectX
    assert_eq!(hca.live_objects().total(), 0);
    assert_eq!(hca.findings(), [] as [&str; 0]);
}
